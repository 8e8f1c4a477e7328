"""A discrete-event simulation of one step: every message of every rank, with ranks that differ and links that are shared. Pure.

It checks the closed formulas (algorithms.py, overlap.py, stragglers.py), which it does not use: it has the alpha and beta of a message,
who sends to whom in each round of an algorithm, and when the gradients of each rank are ready. A rank begins a round when it has sent and
received the message of the one before. A node's link to the others carries one message after the other, in the order in which they come.
"""

import heapq
import math
from collections import defaultdict
from typing import NamedTuple

from launch.forecast.network import hockney


class Round(NamedTuple):
    """One round of an algorithm: `to(rank)` gives the receiver of a rank's message, None if it sends none."""

    to: object
    message_bytes: float


def ring(num_ranks, size_bytes):
    """The rounds of a ring all-reduce."""
    return [Round(lambda rank: (rank + 1) % num_ranks, size_bytes / num_ranks)] * (2 * (num_ranks - 1))


def halving(num_ranks, size_bytes):
    """The rounds of recursive halving and doubling, at a power of 2."""
    distances = [num_ranks // 2**step for step in range(1, int(math.log2(num_ranks)) + 1)]
    down = [Round(lambda rank, distance=distance: rank ^ distance, size_bytes * distance / num_ranks) for distance in distances]
    return [*down, *reversed(down)]


def doubling(num_ranks, size_bytes):
    """The rounds of recursive doubling, at a power of 2."""
    return [Round(lambda rank, distance=2**step: rank ^ distance, size_bytes) for step in range(int(math.log2(num_ranks)))]


def tree(num_ranks, size_bytes):
    """The rounds of a binomial reduction to rank 0 and of a broadcast from there, at a power of 2."""
    down = []
    for distance in (2**step for step in range(int(math.log2(num_ranks)))):

        def up(rank, distance=distance):
            return rank - distance if rank % (2 * distance) == distance else None

        def back(rank, distance=distance):
            return rank + distance if rank % (2 * distance) == 0 else None

        down.append((Round(up, size_bytes), Round(back, size_bytes)))
    return [first for first, _ in down] + [second for _, second in reversed(down)]


def hierarchical(num_ranks, size_bytes, ranks_per_node):
    """A ring's first half in each node, halving between the ranks of the same number on all nodes, the ring's second half."""
    num_nodes = num_ranks // ranks_per_node

    def inside(rank):
        return rank - rank % ranks_per_node + (rank + 1) % ranks_per_node

    def between(rank, partner):
        node, place = divmod(rank, ranks_per_node)
        return partner(node) * ranks_per_node + place

    half = [Round(inside, size_bytes / ranks_per_node)] * (ranks_per_node - 1)
    across = halving(num_nodes, size_bytes / ranks_per_node)
    return [*half, *(Round(lambda rank, to=to: between(rank, to), message_bytes) for to, message_bytes in across), *half]


ALL_REDUCES = {"ring": ring, "halving": halving, "doubling": doubling, "tree": tree}


def all_reduce(algorithm, num_ranks, size_bytes, ranks_per_node):
    """The rounds of an all-reduce by the name of its algorithm."""
    if algorithm == "hierarchical":
        return hierarchical(num_ranks, size_bytes, ranks_per_node)
    return ALL_REDUCES[algorithm](num_ranks, size_bytes)


def step_seconds(compute_seconds, exchanges, algorithm, machine):
    """The time of a step until the last rank has computed and exchanged everything.

    `compute_seconds`: of each rank. `exchanges`: all-reduces, as overlap.Exchange.
    """
    num_ranks = len(compute_seconds)
    rounds, ready_shares = [], []
    for exchange in exchanges:
        of_exchange = all_reduce(algorithm, num_ranks, exchange.size_bytes, machine.ranks_per_node) if num_ranks > 1 else []
        rounds += of_exchange
        # Only the first round of an exchange waits for gradients.
        ready_shares += [exchange.ready_share, *[0.0] * (len(of_exchange) - 1)][: len(of_exchange)]
    exchanged = _Messages(rounds, ready_shares, compute_seconds, machine).run() if rounds else [0.0] * num_ranks
    return max(map(max, zip(compute_seconds, exchanged, strict=True)))


class _Messages:
    """The state of the simulation: when each rank's message of each round arrives, and until when each node's link is busy."""

    def __init__(self, rounds, ready_shares, compute_seconds, machine):
        self.rounds, self.ready_shares, self.compute_seconds, self.machine = rounds, ready_shares, compute_seconds, machine
        ranks = range(len(compute_seconds))
        self.receivers = {id(messages): {messages.to(rank) for rank in ranks} for messages in rounds}
        self.events = [(ready_shares[0] * seconds, rank, 0) for rank, seconds in enumerate(compute_seconds)]
        heapq.heapify(self.events)
        self.arrivals, self.waiting = defaultdict(dict), {}
        self.link_free = defaultdict(float)
        self.ended = [0.0] * len(compute_seconds)

    def run(self):
        """The end of the last round of each rank."""
        while self.events:
            now, rank, number = heapq.heappop(self.events)
            messages = self.rounds[number]
            sent = self._send(now, rank, number, messages.to(rank), messages.message_bytes)
            if rank not in self.receivers[id(messages)]:
                self._end(sent, rank, number)
            elif rank in self.arrivals[number]:
                self._end(max(sent, self.arrivals[number].pop(rank)), rank, number)
            else:
                self.waiting[rank] = (number, sent)
        return self.ended

    def _send(self, now, rank, number, receiver, message_bytes):
        """When a rank has sent its message, which the receiver has by then."""
        if receiver is None:
            return now
        nodes = rank // self.machine.ranks_per_node, receiver // self.machine.ranks_per_node
        if nodes[0] == nodes[1]:
            end = now + hockney.seconds_of(self.machine.inside, message_bytes)
        else:
            # The latency of a message passes while the link carries others.
            seconds = hockney.seconds_of(self.machine.between, message_bytes)
            latency = hockney.seconds_of(self.machine.between, 0)
            start = max(now, self.link_free[nodes[0]])
            self.link_free[nodes[0]] = start + seconds - latency
            end = start + seconds
        if self.waiting.get(receiver, (None,))[0] == number:
            _, sent = self.waiting.pop(receiver)
            self._end(max(sent, end), receiver, number)
        else:
            self.arrivals[number][receiver] = end
        return end

    def _end(self, now, rank, number):
        """Ends a round of a rank, and begins the next when its gradients are ready."""
        if number + 1 == len(self.rounds):
            self.ended[rank] = now
            return
        ready = self.ready_shares[number + 1] * self.compute_seconds[rank]
        heapq.heappush(self.events, (max(now, ready), rank, number + 1))
