"""How long the slowest of n ranks takes, since every step waits for it: the expected maximum of n draws from measured steps. Pure.

Draws of different ranks are taken for independent.
"""

from typing import NamedTuple

import numpy as np


class Slowest(NamedTuple):
    """The distribution of a rank's computation time, relative to its mean. `draws` is sorted; each was the slowest of `num_ranks`."""

    draws: np.ndarray
    num_ranks: int = 1

    def factor(self, num_ranks: int) -> float:
        """The expected time of the slowest of that many ranks, over the mean of what was measured."""
        return expected_maximum(self.draws, num_ranks / self.num_ranks)


def expected_maximum(draws: np.ndarray, num: float) -> float:
    """The expected maximum of `num` draws, with replacement, from a sorted sample; `num` may be a fraction."""
    ranks = np.arange(len(draws) + 1) / len(draws)
    return float(np.diff(ranks**num) @ draws)


def relative(step_seconds, num_epochs):
    """Sorted step times over the median of their epoch, with mean 1; drift that outlasts an epoch is common to all ranks."""
    epochs = [np.asarray(steps, float) for steps in np.array_split(np.asarray(step_seconds, float), max(1, num_epochs)) if len(steps)]
    relative_seconds = np.sort(np.concatenate([steps / np.median(steps) for steps in epochs]))
    return relative_seconds / relative_seconds.mean()
