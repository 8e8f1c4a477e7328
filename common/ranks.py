"""The place of a process among the ranks of its run, and what these add up."""

from typing import NamedTuple, Protocol

import numpy as np


class Ranks(NamedTuple):
    """Global rank and world size, local rank and size on the node, and the launcher they come from."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    source: str = "alone"


class Summing(Protocol):
    """A Trainer, or another object by which the ranks of a run add up float64 values."""

    @property
    def ranks(self) -> Ranks: ...

    def sum(self, values: np.ndarray, /) -> np.ndarray: ...


def by_rank(run: Summing, value: float) -> np.ndarray:
    """All-gathers the value of each rank into an array. All ranks call this."""
    values = np.zeros(run.ranks.size)
    values[run.ranks.rank] = value
    return run.sum(values)
