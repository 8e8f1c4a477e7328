"""How long the slowest of n ranks takes, since every step waits for it: the expected maximum of n draws from measured steps. Pure.

Up to a tenth of the number of samples the empirical distribution gives it; beyond, a tail does, fitted to the slowest tenth of the
samples: a generalized Pareto distribution (Pickands, Annals of Statistics 3, 1975) by probability-weighted moments (Hosking and Wallis,
Technometrics 29, 1987). Draws of different ranks are taken for independent.
"""

import math
from typing import NamedTuple

import numpy as np

# The share of the samples that make the tail; the same share of their number is the largest n that the samples themselves answer.
TAIL_SHARE = 0.1
MIN_TAIL = 10
# Probability-weighted moments need less than 1/2; a tail beyond that would have no variance.
MAX_SHAPE = 0.45


class Slowest(NamedTuple):
    """The distribution of a rank's computation time, relative to its mean. `draws` is sorted; each was the slowest of `num_ranks`."""

    draws: np.ndarray
    num_ranks: int = 1

    @property
    def largest_sampled(self):
        """The largest number of ranks for which no tail is fitted."""
        return max(1, int(len(self.draws) * TAIL_SHARE)) * self.num_ranks

    def factor(self, num_ranks):
        """The expected time of the slowest of that many ranks, over the mean of what was measured."""
        num, num_sampled = num_ranks / self.num_ranks, self.largest_sampled / self.num_ranks
        if num <= num_sampled or len(self.draws) < 2 * MIN_TAIL:
            return expected_maximum(self.draws, num)
        tail = fitted_tail(self.draws)
        return expected_maximum(self.draws, num_sampled) + tail_maximum(tail, num) - tail_maximum(tail, num_sampled)


def expected_maximum(draws, num):
    """The expected maximum of `num` draws, with replacement, from a sorted sample; `num` may be a fraction."""
    ranks = np.arange(len(draws) + 1) / len(draws)
    return float(np.diff(ranks**num) @ draws)


def fitted_tail(draws):
    """(threshold, scale, shape) of the generalized Pareto distribution of a sorted sample's largest values; a shape of 0: exponential."""
    start = len(draws) - max(MIN_TAIL, int(len(draws) * TAIL_SHARE))
    threshold = float(draws[start - 1])
    excesses = np.asarray(draws[start:]) - threshold
    num = len(excesses)
    mean = float(excesses.mean())
    # The second moment weighs the smallest most (Hosking and Wallis, equation 10, plotting positions with -0.35).
    weighted = float(np.mean((1 - (np.arange(1, num + 1) - 0.35) / num) * excesses))
    if not mean - 2 * weighted > 0:
        return threshold, mean, 0.0
    shape = min(2 - mean / (mean - 2 * weighted), MAX_SHAPE)
    return threshold, mean * (1 - shape), shape


def tail_maximum(tail, num):
    """The expected maximum of `num` draws, of which TAIL_SHARE are in the tail."""
    threshold, scale, shape = tail
    in_tail = num * TAIL_SHARE
    if abs(shape) < 1e-6:
        return threshold + scale * (math.log(in_tail) + np.euler_gamma)
    return threshold + scale / shape * (in_tail**shape * math.gamma(1 - shape) - 1)


def relative(step_seconds, num_epochs):
    """Sorted step times over the median of their epoch, with mean 1; drift that outlasts an epoch is common to all ranks."""
    epochs = [np.asarray(steps, float) for steps in np.array_split(np.asarray(step_seconds, float), max(1, num_epochs)) if len(steps)]
    relative_seconds = np.sort(np.concatenate([steps / np.median(steps) for steps in epochs]))
    return relative_seconds / relative_seconds.mean()
