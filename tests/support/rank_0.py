"""Stand-ins for Trainers, which compute nothing: of rank 0, alone or beside a rank 1 with given numbers, and of ranks that are threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from common.errors import RunError
from common.ranks.gpus import Device
from common.ranks.launcher_variables import Ranks

ON_CPU = Device("cpu", None, None, None, None)


class Rank0:
    """`of_rank_1`: what rank 1 adds in one sum after the other; without any, rank 0 is alone."""

    def __init__(self, *of_rank_1, device=ON_CPU):
        self.ranks = Ranks(0, 2, 0, 2) if of_rank_1 else Ranks()
        self.of_rank_1, self.device = iter(of_rank_1), device

    def describe_device(self):
        return self.device

    def sum(self, values):
        return values + np.array([0, next(self.of_rank_1)])[: len(values)] if self.ranks.size > 1 else values


class Thread:
    """A rank that is a thread: all add up their values together."""

    def __init__(self, ranks, values, arrived):
        self.ranks, self.values, self.arrived = ranks, values, arrived

    def sum(self, value):
        self.values[self.ranks.rank] = value
        self.arrived.wait()
        total = np.sum(self.values, axis=0)
        self.arrived.wait()
        return total


def on_ranks(num_ranks, call):
    """What call(trainer) returns, or the RunError that it raises, on each rank."""
    values, arrived = [None] * num_ranks, threading.Barrier(num_ranks, timeout=10)

    def run(rank):
        try:
            return call(Thread(Ranks(rank, num_ranks, rank, num_ranks), values, arrived))
        except RunError as error:
            return error

    with ThreadPoolExecutor(num_ranks) as threads:
        return list(threads.map(run, range(num_ranks)))
