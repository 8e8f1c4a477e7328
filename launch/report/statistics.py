"""What several runs of one thing say together, and how sure a comparison of two such sets is. Pure."""

from typing import NamedTuple

import numpy as np

# MLPerf Training takes 5 runs or more of a benchmark and drops the fastest and the slowest of them
# (MLPerf Training Rules, "Benchmark Results", github.com/mlcommons/training_policies).
TRIMMED_FROM = 5
# The same rules: one run that did not converge may be counted as the slowest; with more the result is invalid.
MISSES_ALLOWED = 1
# A single miss among fewer runs than these would be the middle one itself, or the only one.
FEWEST_WITH_A_MISS = 3

CONFIDENCE = 0.95
# From so many runs on an interval can be as wide as it should be; tests/test_statistics.py tries it.
SURE_FROM = 6
# What a draw of numbers that are all 0, as accuracies may be, counts as below a ratio.
SMALLEST = 1e-9
NUM_RESAMPLES = 9999
SEED = 1


class Ratio(NamedTuple):
    """A ratio of two typical values with its 95 % interval; `low` and `high` are None where there are too few runs for one.

    `num_above` and `num_below` are the numbers of runs on its sides, which for pairs are the same.
    """

    value: float
    low: float | None
    high: float | None
    num_above: int
    num_below: int
    paired: bool

    @property
    def is_difference(self):
        """Whether the interval leaves out 1; None where there is no interval."""
        return None if self.low is None else not self.low <= 1 <= self.high


def typical(values, axis=-1):
    """The one number for several runs: their median, and from 5 on the mean without the smallest and the largest."""
    values = np.asarray(values, float)
    if values.shape[axis] < TRIMMED_FROM:
        return np.median(values, axis=axis)
    return (values.sum(axis) - values.min(axis) - values.max(axis)) / (values.shape[axis] - 2)


def counted(times):
    """The times to solution of all repeats as they count, or None where the entry is invalid. A time is None where a run missed its target.

    One miss counts as the slowest run: it stands here with the time of the slowest other, which gives the same median or trimmed mean
    as any longer one. Two misses make the entry invalid, and so does one where fewer than 3 ran.
    """
    reached = [time for time in times if time is not None]
    num_missed = len(times) - len(reached)
    if not reached or num_missed > MISSES_ALLOWED or (num_missed and len(times) < FEWEST_WITH_A_MISS):
        return None
    return [max(reached) if time is None else time for time in times]


def ratio(above, below, paired):
    """The Ratio of the typical values, that below not 0, of two sets of numbers from 0, with the percentile bootstrap's interval.

    Pairs, as of interleaved repeats, are drawn together, so that what slows both sides alike takes no part. The draws are seeded, so that
    a report can be made again. The interval is the expanded percentile interval of Hesterberg, What Teachers Should Know About the
    Bootstrap (The American Statistician 69, 2015), since the plain one is too narrow for few runs: it takes those percentiles that give
    the width of Student's t interval for a mean of normal values.
    """
    value = float(typical(above) / typical(below))
    num_above, num_below = len(above), len(below)
    num_runs = min(num_above, num_below)
    if num_runs < 2:
        return Ratio(value, None, None, num_above, num_below, paired)
    # Slow to import, and wanted for nothing else.
    from scipy.stats import bootstrap, norm, t

    quantile = t.ppf((1 + CONFIDENCE) / 2, num_runs - 1) * (num_runs / (num_runs - 1)) ** 0.5
    found = bootstrap(
        (np.asarray(above, float), np.asarray(below, float)),
        lambda upper, lower, axis: typical(upper, axis) / np.maximum(typical(lower, axis), SMALLEST),
        paired=paired, vectorized=True, method="percentile",
        confidence_level=1 - 2 * norm.cdf(-quantile), n_resamples=NUM_RESAMPLES, rng=np.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    return Ratio(value, float(found.low), float(found.high), num_above, num_below, paired)


def coverage(num_runs):
    """How probably an interval from so many runs holds the true ratio, at best: it cannot be wider than what was seen.

    The range of n runs misses their true median where all fall on one side of it, each with probability 1/2.
    """
    return min(1 - 2.0 ** (1 - num_runs), CONFIDENCE)


def efficiency(speed_up, ranks):
    """The share of an ideal speed-up by the number of ranks."""
    return speed_up / ranks


def allowed_speed_up(ranks, num_cores, threads):
    """The largest speed-up against one rank that the cores explain: one for each rank that has cores of its own."""
    return min(ranks, max(num_cores // threads, 1))
