"""The place of a process among the ranks of its run."""

from typing import NamedTuple


class Ranks(NamedTuple):
    """Global rank and world size, local rank and size on the node, and the launcher they come from."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    source: str = "alone"
