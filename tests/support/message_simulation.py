"""A discrete-event simulation of one step: every message of every rank, with ranks that differ and links that are shared.

It checks the closed formulas of launch/forecast, which it does not use: it has the alpha and beta of a message, who sends to whom in each
round of an algorithm, and when the gradients of each rank are ready. A rank begins a round when it has sent and received the message of
the one before. A node's link to the others carries one message after the other, in the order in which they come.
"""

import heapq
import math
from typing import NamedTuple

from launch.forecast.network import hockney


class Round(NamedTuple):
    """One round of an algorithm: the receiver of each rank's message."""

    receivers: list
    message_bytes: float


def ring(num_ranks, size_bytes):
    """The rounds of a ring all-reduce."""
    return [Round([(rank + 1) % num_ranks for rank in range(num_ranks)], size_bytes / num_ranks)] * (2 * (num_ranks - 1))


def halving(num_ranks, size_bytes):
    """The rounds of recursive halving and doubling, at a power of 2."""
    distances = [2**step for step in range(int(math.log2(num_ranks)))]
    up = [Round([rank ^ distance for rank in range(num_ranks)], size_bytes * distance / num_ranks) for distance in distances]
    return [*reversed(up), *up]


ALL_REDUCES = {"ring": ring, "halving": halving}


def all_reduce(algorithm, num_ranks, size_bytes):
    """The rounds of an all-reduce by the name of its algorithm; none at one rank."""
    return ALL_REDUCES[algorithm](num_ranks, size_bytes) if num_ranks > 1 else []


def step_seconds(compute_seconds, exchanges, algorithm, machine):
    """The time of a step until the last rank has computed and exchanged everything.

    `compute_seconds`: of each rank. `exchanges`: all-reduces, as model.Exchange.
    """
    rounds, ready_shares = [], []
    for exchange in exchanges:
        of_exchange = all_reduce(algorithm, len(compute_seconds), exchange.size_bytes)
        rounds += of_exchange
        # Only the first round of an exchange waits for gradients.
        ready_shares += [exchange.ready_share, *[0.0] * (len(of_exchange) - 1)][: len(of_exchange)]
    return max(*compute_seconds, *_ends(rounds, ready_shares, compute_seconds, machine)) if rounds else max(compute_seconds)


def _ends(rounds, ready_shares, compute_seconds, machine):
    """The end of the last round of each rank."""
    ends, link_free = {}, {}
    # Of a rank's part in each round: when what it has sent or received so far was over.
    halves = {}
    events = [(ready_shares[0] * seconds, rank, 0) for rank, seconds in enumerate(compute_seconds)]
    heapq.heapify(events)
    receiving = {id(messages): set(messages.receivers) for messages in rounds}

    def finish(rank, number, now):
        """Takes note that a rank has sent, or received, in a round; with both it begins the next when its gradients are ready."""
        if rank in receiving[id(rounds[number])] and (rank, number) not in halves:
            halves[rank, number] = now
            return
        ends[rank] = max(now, halves.pop((rank, number), now))
        if number + 1 < len(rounds):
            ready = ready_shares[number + 1] * compute_seconds[rank]
            heapq.heappush(events, (max(ends[rank], ready), rank, number + 1))

    while events:
        now, rank, number = heapq.heappop(events)
        receiver, message_bytes = rounds[number].receivers[rank], rounds[number].message_bytes
        if receiver is not None:
            now = _sent(now, rank // machine.ranks_per_node, receiver // machine.ranks_per_node, message_bytes, machine, link_free)
            finish(receiver, number, now)
        finish(rank, number, now)
    return ends.values()


def _sent(now, node, node_of_receiver, message_bytes, machine, link_free):
    """When a message has arrived. `link_free`: {node: when its link to the others is free}, which is updated."""
    if node == node_of_receiver:
        return now + hockney.seconds_of(machine.inside, message_bytes)
    start = max(now, link_free.get(node, 0.0))
    # The latency of a message passes while the link carries others.
    link_free[node] = start + hockney.seconds_of(machine.between, message_bytes) - hockney.seconds_of(machine.between, 0)
    return start + hockney.seconds_of(machine.between, message_bytes)
