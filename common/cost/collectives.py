"""The collectives as nccl-tests measure them: what a rank contributes and receives, and how much of it passes the bus.

The size of a collective is nccl-tests': the larger of what a rank sends and what it receives. The bus factors are derived in their
doc/PERFORMANCE.md. Pure.
"""

from collections.abc import Callable
from typing import NamedTuple

ELEMENT_BYTES = 4


class Collective(NamedTuple):
    """`bus_factor(n)`: bus bandwidth over algorithm bandwidth at n ranks. `sends_part`, `receives_part`: a rank sends, or receives, one
    of n equal parts of the size. `divided`: the size is cut into n parts. `redop` and `root`: as nccl-tests print them."""

    bus_factor: Callable[[int], float]
    redop: str = "none"
    root: int = -1
    sends_part: bool = False
    receives_part: bool = False
    divided: bool = False


def _part_of_others(n):
    return (n - 1) / n


COLLECTIVES = {
    "all_reduce": Collective(lambda n: 2 * (n - 1) / n, redop="sum"),
    "all_gather": Collective(_part_of_others, sends_part=True, divided=True),
    "reduce_scatter": Collective(_part_of_others, redop="sum", receives_part=True, divided=True),
    "broadcast": Collective(lambda n: 1, root=0),
    "all_to_all": Collective(_part_of_others, divided=True),
    # Every rank sends to the next one and receives from the one before, all at once, as in nccl-tests.
    "send_recv": Collective(lambda n: 1),
    # Without data: nccl-tests have none.
    "barrier": Collective(lambda n: 0),
}


def num_elements(name, size_bytes, num_ranks):
    """The number of elements of a collective of about this size: rounded down, but each rank has at least one in each part."""
    whole = size_bytes // ELEMENT_BYTES
    return max(whole // num_ranks, 1) * num_ranks if COLLECTIVES[name].divided else whole


def bus_bytes(name, num_bytes, num_ranks):
    """Bytes that a rank sends in a collective to which it contributes `num_bytes`; all of them in one that is not in COLLECTIVES."""
    if name not in COLLECTIVES:
        return num_bytes
    collective = COLLECTIVES[name]
    return collective.bus_factor(num_ranks) * (num_bytes * num_ranks if collective.sends_part else num_bytes)
