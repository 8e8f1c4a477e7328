"""The time of a collective by its algorithm: rounds of messages that take alpha + beta n each (Hockney 1994).

A rank sends and receives one message in a round, at the same time. The arithmetic of a reduction is in the beta that was measured.
Formulas for n ranks and S bytes, the whole buffer:

- ring: all-reduce in 2(n-1) rounds of S/n (Patarasuk and Yuan, JPDC 69, 2009), reduce-scatter and all-gather in half as many
- halving: recursive halving, then doubling: 2 log2 n rounds of S/2, S/4, … (Rabenseifner's algorithm; Thakur, Rabenseifner and Gropp,
  IJHPCA 19, 2005, sections 4.2 and 4.5)

`gloo_all_gather` is Gloo's, whatever the all-reduce: a ring in two segments of each share (gloo/allgather.cc). A rank first sends a segment
and then the notice that it can receive one, and no segment is sent before this notice (gloo/transport/tcp/pair.cc). Between two ranks both
use one connection: the notice of the later rank is queued behind its first segment, of S/4, and only then the earlier rank sends its two.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from launch.forecast.network import hockney
from launch.forecast.network.hockney import Regime


class Machine(NamedTuple):
    """Where ranks are placed, and the Regimes of a message between two of them: `inside` a node, and `between` nodes."""

    ranks_per_node: int
    inside: tuple[Regime, ...]
    between: tuple[Regime, ...]


class Rounds(NamedTuple):
    """Equal rounds of messages, `between` nodes or inside; `flows` ranks of a node send over its link at the same time."""

    num: int
    message_bytes: float
    between: bool
    flows: int = 1


# The rounds of a collective, from its bytes, the number of ranks, and the ranks per node.
Algorithm = Callable[[float, int, int], list[Rounds]]
# The all-reduce of a library for all but short messages. Gloo of PyTorch and Horovod: gloo/allreduce.cc. MPI: Thakur et al., section 4.5.
# NCCL has trees beside its rings, and chooses by a model of its own.
BY_TRANSPORT = {"gloo": "ring", "grpc": "ring", "mpi": "halving", "nccl": "ring"}


def seconds(collective: str, algorithm: str, size_bytes: float, num_ranks: int, machine: Machine) -> float:
    """Returns the time of a collective of `size_bytes` in all; 0 at one rank."""
    groups = rounds(collective, algorithm, size_bytes, num_ranks, machine.ranks_per_node)
    return sum(group.num * _message_seconds(group, machine) for group in groups)


def _message_seconds(group: Rounds, machine: Machine) -> float:
    """Returns the time of a round. Flows over one link share its bandwidth."""
    inside = hockney.seconds_of(machine.inside, group.message_bytes)
    return max(inside, hockney.seconds_of(machine.between, group.flows * group.message_bytes)) if group.between else inside


def rounds(collective: str, algorithm: str, size_bytes: float, num_ranks: int, ranks_per_node: int) -> list[Rounds]:
    """Returns the rounds of a collective. One without a formula of its own, such as a gather, counts as a broadcast."""
    if num_ranks == 1:
        return []
    place = (size_bytes, num_ranks, ranks_per_node)
    if collective == "all_reduce":
        return ALL_REDUCES[algorithm](*place)
    if collective == "gloo_all_gather":
        return [Rounds(3, size_bytes / 4, ranks_per_node == 1)] if num_ranks == 2 else _ring(*place)
    if collective in ("reduce_scatter", "all_gather"):
        return _ring(*place) if algorithm == "ring" else _halving(*place)
    if collective == "all_to_all":
        several = num_ranks > ranks_per_node
        return [Rounds(num_ranks - 1, size_bytes / num_ranks, several, ranks_per_node if several else 1)]
    return _levels(*place)


def _ring(size_bytes: float, num_ranks: int, ranks_per_node: int) -> list[Rounds]:
    """Returns half an all-reduce. One rank of each node sends to the next node."""
    return [Rounds(num_ranks - 1, size_bytes / num_ranks, num_ranks > ranks_per_node)]


def _halving(size_bytes: float, num_ranks: int, ranks_per_node: int) -> list[Rounds]:
    """Returns half an all-reduce.

    The ranks beyond a power of 2 give their data to another rank first, and get the result last: a round of S in each half
    (MPICH's allreduce_intra_reduce_scatter_allgather).
    """
    power = 2 ** int(math.log2(num_ranks))
    beyond = [Rounds(1, size_bytes, num_ranks > ranks_per_node)] if power < num_ranks else []
    distances = [power // 2**step for step in range(1, int(math.log2(power)) + 1)]
    return beyond + [_crossing(1, size_bytes * distance / power, distance, ranks_per_node) for distance in distances]


def _crossing(num: int, message_bytes: float, distance: int, ranks_per_node: int) -> Rounds:
    """Returns rounds in which all ranks exchange with the rank at a distance: in another node where both do not fit into one."""
    between = 2 * distance > ranks_per_node
    return Rounds(num, message_bytes, between, ranks_per_node if between else 1)


def _levels(size_bytes: float, num_ranks: int, ranks_per_node: int) -> list[Rounds]:
    """Returns the rounds of a binomial broadcast: first to one rank of each node, and then inside."""
    num_nodes = math.ceil(num_ranks / ranks_per_node)
    levels = [(num_nodes, True), (min(num_ranks, ranks_per_node), False)]
    return [Rounds(math.ceil(math.log2(num)), size_bytes, between) for num, between in levels if num > 1]


def _twice(half: Algorithm) -> Algorithm:
    return lambda *place: [group._replace(num=2 * group.num) for group in half(*place)]


ALL_REDUCES = {"ring": _twice(_ring), "halving": _twice(_halving)}
