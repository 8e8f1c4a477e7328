"""A call is timed in loops that follow its length, and every rank makes the same number of calls; the fit of what was measured."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from common.process.ranks import Ranks
from frameworks.shared.collectives.library import Library
from launch.collectives import measurement
from launch.collectives.measurement import Measurement


class Threads:
    """A library whose ranks are threads of this process."""

    def __init__(self, num_ranks):
        self.num_ranks, self.barrier, self.values = num_ranks, threading.Barrier(num_ranks, timeout=5), [None] * num_ranks

    def library(self, rank):
        def summed(values):
            self.values[rank] = values
            self.barrier.wait()
            total = np.sum(self.values, axis=0)
            self.barrier.wait()
            return total

        return Library(Ranks(rank, self.num_ranks, rank, self.num_ranks), summed, {}, lambda: None)

    def run(self, work):
        """[what work(library of a rank) returns, by rank]."""
        with ThreadPoolExecutor(self.num_ranks) as pool:
            return list(pool.map(lambda rank: work(self.library(rank)), range(self.num_ranks), timeout=30))


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 1000), (1e-6, 1000), (1e-3, 20), (0.015, 2), (0.02, 1), (5.0, 1)])
def test_a_repeat_takes_about_as_long_whatever_the_call(seconds, expected):
    assert measurement.iterations(seconds) == expected


def test_all_ranks_make_the_same_calls_and_know_the_same_times():
    calls, beats = [0, 0], []

    def work(library):
        rank = library.ranks.rank

        def call():
            calls[rank] += 1
            # The first rank alone would make twice as many calls as the second.
            time.sleep(0.002 * (1 + rank))

        return measurement.time_call(library, call, 3, lambda: beats.append(rank))

    first, second = Threads(2).run(work)
    assert first == second
    seconds, num_iterations = first
    assert calls[0] == calls[1] == 1 + measurement.NUM_WARMUPS + 3 * num_iterations
    assert len(seconds) == 3
    # The mean of both ranks, of which one sleeps 2 ms and the other one 4.
    assert min(seconds) >= 0.003
    assert len(beats) == 2 * (2 + 3)


def test_a_slow_call_is_warmed_up_once(monkeypatch):
    monkeypatch.setattr(measurement, "SLOW_SECONDS", 0.001)
    calls = []

    def call():
        calls.append(1)
        time.sleep(0.03)

    ((seconds, num_iterations),) = Threads(1).run(lambda library: measurement.time_call(library, call, 2, lambda: None))
    assert (len(calls), num_iterations, len(seconds)) == (3, 1, 2)


@pytest.mark.parametrize(
    ("collective", "in_place"), [("all_reduce", True), ("broadcast", True), ("all_gather", False), ("send_recv", False)]
)
def test_alpha_and_beta_are_of_one_half(collective, in_place):
    both = [
        Measurement("mpi", collective, half, 4, size, size // 4, [alpha + 1e-9 * size], 10, 0)
        for half, alpha in ((False, 3e-5), (True, 1e-5)) for size in (8, 1024, 2**20)
    ]  # fmt: skip
    fitted = measurement.fit(both)
    assert (fitted.in_place, fitted.library, fitted.collective, fitted.num_ranks) == (in_place, "mpi", collective, 4)
    assert fitted.regimes[0].alpha_seconds == pytest.approx(1e-5 if in_place else 3e-5)
