"""Scores of repeated runs, and ratios and differences of two sets of runs with their 95 % intervals."""

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

Present = TypeVar("Present")

# MLPerf Training scores 5 runs or more of a benchmark and drops the fastest and the slowest
# (MLPerf Training Rules, "Benchmark Results", github.com/mlcommons/training_policies).
MIN_RUNS_TRIMMED = 5
# The same rules: one run that did not converge counts as the slowest; with more the result is invalid.
MAX_MISSES = 1
# With fewer runs than this, a miss would itself be the median.
MIN_RUNS_WITH_A_MISS = 3

CONFIDENCE = 0.95
# Times that differ by less are equal for a choice between backends.
MARGIN = 0.05
# With fewer runs an interval says nothing: with two, one of five backends can reach from 0.02 to 50.
MIN_RUNS_WITH_INTERVAL = 3
# From fewer runs there is no verdict: their intervals hold too, but most are wider than the differences that matter.
MIN_RUNS_CONFIDENT = 6
# Replaces a value without a logarithm, such as an accuracy of 0.
SMALLEST = 1e-9


class Ratio(NamedTuple):
    """A ratio of two sets of values with its 95 % interval; `low` and `high` are None with fewer than 3 runs on a side.

    `num_above` and `num_below` are the numbers of runs in numerator and denominator; they are equal for pairs.
    """

    value: float
    low: float | None
    high: float | None
    num_above: int
    num_below: int
    paired: bool

    @property
    def is_difference(self) -> bool | None:
        """Whether the interval excludes 1; None where there is no interval."""
        return None if self.low is None or self.high is None else not self.low <= 1 <= self.high

    @property
    def is_equal(self) -> bool:
        """Whether the whole interval is within MARGIN of 1: two one-sided tests (Schuirmann 1987), at the level of the interval."""
        return self.low is not None and self.high is not None and self.low >= 1 / (1 + MARGIN) and self.high <= 1 + MARGIN

    @property
    def verdict(self) -> bool | None:
        """Whether the interval excludes 1; None where there are too few runs for it to reach its confidence."""
        return self.is_difference if min(self.num_above, self.num_below) >= MIN_RUNS_CONFIDENT else None


class Difference(NamedTuple):
    """A difference of two means with its 95 % interval; `low` and `high` are None with fewer than 3 runs on a side."""

    value: float
    low: float | None
    high: float | None


class Noise(NamedTuple):
    """The variance of a difference of two means, and the degrees of freedom with which it is known."""

    variance: float
    freedom: float


def present(values: Iterable[Present | None]) -> list[Present]:
    """Returns the values that are not None."""
    return [value for value in values if value is not None]


def complete(values: Sequence[Present | None]) -> list[Present] | None:
    """Returns the values as a list; None where one of them is None."""
    numbers = present(values)
    return numbers if len(numbers) == len(values) else None


def trimmed_mean(values: Iterable[float | None]) -> float | None:
    """Returns the mean of several runs without the smallest and the largest; the median of fewer than 5.

    Values that are None do not count. The mean is None where all are.
    """
    numbers = present(values)
    if not numbers:
        return None
    if len(numbers) < MIN_RUNS_TRIMMED:
        return float(np.median(numbers))
    return float(np.mean(sorted(numbers)[1:-1]))


def mean(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the values that are not None; None where all are."""
    numbers = present(values)
    return float(np.mean(numbers)) if numbers else None


def scored(times: Sequence[float | None]) -> list[float] | None:
    """Returns the times to solution of all repeats as MLPerf scores them, None where the entry is invalid. A miss is None in `times`.

    One miss counts as the slowest run: it gets the time of the slowest other run, which gives the same median or trimmed mean as any
    longer time. Two misses make the entry invalid, and so does one miss with fewer than 3 runs.
    """
    reached = present(times)
    num_missed = len(times) - len(reached)
    if not reached or num_missed > MAX_MISSES or (num_missed and len(times) < MIN_RUNS_WITH_A_MISS):
        return None
    return [max(reached) if time is None else time for time in times]


def geometric_mean(values: Sequence[float]) -> float:
    """Returns the geometric mean of positive numbers."""
    return float(np.exp(np.log(np.asarray(values, float)).mean()))


def ratio(
    above: Sequence[float],
    below: Sequence[float],
    paired: bool,
    other_sets: Sequence[Sequence[float]] = (),
    num_pairs: int = 1,
    value: float | None = None,
) -> Ratio:
    """Returns the ratio of two sets of positive numbers with its interval, by the rule in launch/report/README.md.

    It is Student's interval of the difference of the means of the logarithms.

    Arguments:
        paired: whether the numbers of both are of the same repeats, in the same order. What a repeat has in common for all sets cancels.
        other_sets: the numbers of other sets in these repeats, which also show how much a set varies.
        num_pairs: how many pairs of sets have intervals that hold together, at Bonferroni's level, such as all pairs of those of which the
            fastest was chosen by the same numbers.
        value: the ratio, where it is not that of the geometric means but that of trimmed means.
    """
    upper, lower, *other_logarithms = (np.log(np.maximum(np.asarray(values, float), SMALLEST)) for values in (above, below, *other_sets))
    estimate = float(np.exp(upper.mean() - lower.mean())) if value is None else value
    if min(len(above), len(below)) < MIN_RUNS_WITH_INTERVAL:
        return Ratio(estimate, None, None, len(above), len(below), paired)
    bound = float(np.exp(_half_width(_noise(upper, lower, paired, other_logarithms), num_pairs)))
    return Ratio(estimate, estimate / bound, estimate * bound, len(above), len(below), paired)


def difference(above: Sequence[float], below: Sequence[float], paired: bool) -> Difference:
    """Returns the difference of the means of two sets of numbers, with Student's 95 % interval."""
    upper, lower = np.asarray(above, float), np.asarray(below, float)
    value = float(upper.mean() - lower.mean())
    if min(len(above), len(below)) < MIN_RUNS_WITH_INTERVAL:
        return Difference(value, None, None)
    half_width = _half_width(_noise(upper, lower, paired))
    return Difference(value, value - half_width, value + half_width)


def _noise(upper: np.ndarray, lower: np.ndarray, paired: bool, other_sets: Sequence[np.ndarray] = ()) -> Noise:
    """Returns the noise of the difference of the means of two sets.

    Of pairs, the variance of a set is that of its interaction with the repeat, in a two-way analysis of all sets. A set may vary more than
    the others, but a few repeats also make a set look steadier than it is, so that it is its own or the median of all sets, whichever is
    larger. Its own is known with as many degrees of freedom as repeats, less one, the median with those of all sets, and the sum with no
    more. Of two sets this is the noise of their differences.
    """
    if not paired:
        return _added([Noise(float(side.var(ddof=1)) / len(side), len(side) - 1) for side in (upper, lower)])
    logarithms = np.stack([upper, lower, *other_sets])
    num_sets, num_repeats = logarithms.shape
    interaction = logarithms - logarithms.mean(axis=0) - logarithms.mean(axis=1, keepdims=True) + logarithms.mean()
    freedom = (num_repeats - 1) * (num_sets - 1)
    variances = ((interaction**2).sum(axis=1) * num_sets / freedom).tolist()
    median = float(np.median(variances))
    noise = _added(
        [Noise(max(variance, median) / num_repeats, num_repeats - 1 if variance > median else freedom) for variance in variances[:2]]
    )
    return noise._replace(freedom=min(noise.freedom, freedom))


def _added(noises: Sequence[Noise]) -> Noise:
    """Returns the noise of a sum or difference of means whose noises do not depend on each other (Welch and Satterthwaite)."""
    variance = sum(noise.variance for noise in noises)
    # Without any variance the degrees of freedom do not matter.
    freedom = variance**2 / sum(noise.variance**2 / noise.freedom for noise in noises) if variance else 1
    return Noise(variance, freedom)


def _half_width(noise: Noise, num_pairs: int = 1) -> float:
    """Returns how far the interval of a difference, one of `num_pairs`, reaches to either side."""
    return _students_t(num_pairs, round(noise.freedom, 1)) * noise.variance**0.5


@functools.cache
def _students_t(num_pairs: int, freedom: float) -> float:
    """Returns the number of standard errors to either side of one of `num_pairs` differences."""
    # scipy is slow to import, and most programs do not need it.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - (1 - CONFIDENCE) / 2 / num_pairs))
