"""How long the slowest of n ranks takes, since every step waits for it: the expected maximum of n draws from measured steps.

Draws of different ranks are assumed to be independent.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Slowest(NamedTuple):
    """The distribution of a rank's computation time, relative to its mean. `draws` is sorted; each was the slowest of `num_ranks`."""

    draws: np.ndarray
    num_ranks: int = 1

    def factor(self, num_ranks: int) -> float:
        """Returns the expected time of the slowest of that many ranks, over the measured mean."""
        return expected_maximum(self.draws, num_ranks / self.num_ranks)


def expected_maximum(draws: np.ndarray, num: float) -> float:
    """Returns the expected maximum of `num` draws, with replacement, from a sorted sample; `num` may be a fraction."""
    ranks = np.arange(len(draws) + 1) / len(draws)
    return float(np.diff(ranks**num) @ draws)


def relative(step_seconds: Sequence[float], num_epochs: int) -> np.ndarray:
    """Divides step times by the median of their epoch, sorts them and scales them to mean 1; drift over epochs is common to all ranks."""
    epochs = [np.asarray(steps, float) for steps in np.array_split(np.asarray(step_seconds, float), max(1, num_epochs)) if len(steps)]
    relative_seconds = np.sort(np.concatenate([steps / np.median(steps) for steps in epochs]))
    return relative_seconds / relative_seconds.mean()
