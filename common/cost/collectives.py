"""The collectives as nccl-tests measure them: the data that a rank contributes and receives, and the share of it that passes the bus.

The size of a collective is the larger of the bytes that a rank sends and those that it receives, as in nccl-tests. Their
doc/PERFORMANCE.md derives the bus factors.
"""

from collections.abc import Callable
from typing import NamedTuple

ELEMENT_BYTES = 4


class Collective(NamedTuple):
    """A kind of collective.

    `bus_factor(n)` is bus bandwidth over algorithm bandwidth at n ranks. With `sends_part` or `receives_part` a rank sends or receives one
    of n equal parts of the size. With `divided` the size is cut into n parts. nccl-tests print `redop` and `root`.
    """

    bus_factor: Callable[[int], float]
    redop: str = "none"
    root: int = -1
    sends_part: bool = False
    receives_part: bool = False
    divided: bool = False


def _part_of_other_ranks(n: int) -> float:
    return (n - 1) / n


COLLECTIVES = {
    "all_reduce": Collective(lambda n: 2 * (n - 1) / n, redop="sum"),
    "all_gather": Collective(_part_of_other_ranks, sends_part=True, divided=True),
    "reduce_scatter": Collective(_part_of_other_ranks, redop="sum", receives_part=True, divided=True),
    "broadcast": Collective(lambda n: 1, root=0),
    "all_to_all": Collective(_part_of_other_ranks, divided=True),
    # Every rank sends to the next one and receives from the one before, all at once, as in nccl-tests.
    "send_recv": Collective(lambda n: 1),
    # Without data: nccl-tests have none.
    "barrier": Collective(lambda n: 0),
}


def num_elements(name: str, size_bytes: int, num_ranks: int) -> int:
    """Returns the number of elements of a collective of about this size, rounded down, but with at least one in each part."""
    num_undivided = size_bytes // ELEMENT_BYTES
    return max(num_undivided // num_ranks, 1) * num_ranks if COLLECTIVES[name].divided else num_undivided


def bus_bytes(name: str, num_bytes: float, num_ranks: int) -> float:
    """Returns the bytes that a rank sends in a collective to which it contributes `num_bytes`: all of them if COLLECTIVES lacks it."""
    if name not in COLLECTIVES:
        return num_bytes
    collective = COLLECTIVES[name]
    return collective.bus_factor(num_ranks) * (num_bytes * num_ranks if collective.sends_part else num_bytes)
