"""Trimmed means of repeated runs, and ratios of two sets of runs with their intervals."""

import functools
import math
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
# The rounds of turns of one run that make a block, and the fewest blocks that give an interval.
ROUNDS_OF_BLOCK, MIN_BLOCKS = 2, 4
# The interval of one run is wider by this than its own noise, since a run differs from the next by more than its rounds show. With it, the
# intervals of the committed runs hold for the mean of their other repeats in 95 % of cases, and in 83 % without
# (tests/launch/report/test_one_run.py).
ONE_RUN_WIDENING = 1.7
# Times that differ by less are equal for a choice between backends.
MARGIN = 0.05
# With fewer runs an interval says nothing: with two, one of five backends can reach from 0.02 to 50.
MIN_RUNS_WITH_INTERVAL = 3
# The smallest number of runs from which an interval can reach CONFIDENCE; see `coverage`.
MIN_RUNS_CONFIDENT = 6
# Replaces a denominator of 0, such as that of a resample of accuracies that are all 0.
MIN_DENOMINATOR = 1e-9
NUM_RESAMPLES = 9999
SEED = 1


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
    known = present(values)
    return known if len(known) == len(values) else None


def trimmed_mean(values: Iterable[float | None]) -> float | None:
    """Returns the mean of several runs without the smallest and the largest; the median of fewer than 5.

    Values that are None do not count. The mean is None where all are.
    """
    known = present(values)
    return float(_trimmed_mean_along(np.asarray(known, float))) if known else None


def _trimmed_mean_along(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Returns the trimmed means along an axis."""
    if values.shape[axis] < MIN_RUNS_TRIMMED:
        return np.median(values, axis=axis)
    return (values.sum(axis) - values.min(axis) - values.max(axis)) / (values.shape[axis] - 2)


def mean(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the values that are not None; None where all are."""
    known = present(values)
    return float(np.mean(known)) if known else None


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


def ratio(above: Sequence[float], below: Sequence[float], paired: bool) -> Ratio:
    """Returns the ratio of the trimmed means of two sets of non-negative numbers, with a bootstrap percentile interval.

    Pairs, such as interleaved repeats, are resampled together, so that noise common to both sides cancels. The seed is fixed, so that a
    report is reproducible. The interval is the expanded percentile interval of Hesterberg, What Teachers Should Know About the Bootstrap
    (The American Statistician 69, 2015), since the plain one is too narrow for few runs: its percentiles give the width of Student's t
    interval for a mean of normal values. The trimmed mean of `below` must not be 0.
    """
    values_above, values_below = np.asarray(above, float), np.asarray(below, float)
    value = float(_trimmed_mean_along(values_above) / _trimmed_mean_along(values_below))
    num_above, num_below = len(above), len(below)
    num_runs = min(num_above, num_below)
    if num_runs < MIN_RUNS_WITH_INTERVAL:
        return Ratio(value, None, None, num_above, num_below, paired)
    # scipy.stats is slow to import, and most programs do not need it.
    from scipy.stats import bootstrap, norm, t

    quantile = t.ppf((1 + CONFIDENCE) / 2, num_runs - 1) * (num_runs / (num_runs - 1)) ** 0.5
    interval = bootstrap(
        (values_above, values_below),
        lambda upper, lower, axis: _trimmed_mean_along(upper, axis) / np.maximum(_trimmed_mean_along(lower, axis), MIN_DENOMINATOR),
        paired=paired, vectorized=True, method="percentile",
        confidence_level=1 - 2 * float(norm.cdf(-quantile)), n_resamples=NUM_RESAMPLES, rng=np.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    return Ratio(value, float(interval.low), float(interval.high), num_above, num_below, paired)


def difference(above: Sequence[float], below: Sequence[float], paired: bool) -> Difference:
    """Returns the difference of the means of two sets of numbers, with its 95 % interval: Student's for pairs, else Welch's."""
    upper, lower = np.asarray(above, float), np.asarray(below, float)
    value = float(upper.mean() - lower.mean())
    if min(len(above), len(below)) < MIN_RUNS_WITH_INTERVAL:
        return Difference(value, None, None)
    reach = _reach(_noise(upper, lower, paired))
    return Difference(value, value - reach, value + reach)


def ratio_of_one_run(above: Sequence[float], below: Sequence[float]) -> Ratio | None:
    """Returns the ratio of the sums of two runs' seconds in the same rounds of turns, with its interval; None with few rounds.

    The interval is for the mean ratio of many such runs. It is the linearized error of a ratio (Cochran, Sampling Techniques, 6.4) with
    Student's t, over blocks of rounds, since the machine's state lasts longer than a round; its reach is widened by ONE_RUN_WIDENING.
    """
    num_blocks = min(len(above), len(below)) // ROUNDS_OF_BLOCK
    if num_blocks < MIN_BLOCKS:
        return None
    blocks = [np.add.reduceat(np.asarray(side, float), range(0, num_blocks * ROUNDS_OF_BLOCK, ROUNDS_OF_BLOCK)) for side in (above, below)]
    value = float(blocks[0].sum() / blocks[1].sum())
    residuals = blocks[0] - value * blocks[1]
    variance = num_blocks / (num_blocks - 1) * float((residuals**2).sum()) / float(blocks[0].sum()) ** 2
    reach = ONE_RUN_WIDENING * _reach(Noise(variance, num_blocks - 1))
    return Ratio(value, value * float(np.exp(-reach)), value * float(np.exp(reach)), 1, 1, True)


def geometric_mean(values: Sequence[float]) -> float:
    """Returns the geometric mean of positive numbers."""
    return float(np.exp(np.log(np.asarray(values, float)).mean()))


def simultaneous_ratio(
    above: Sequence[float],
    below: Sequence[float],
    paired: bool,
    num_compared: int,
    repeat_noise: Noise | None = None,
    session_noise: Noise | None = None,
) -> Ratio:
    """Returns the ratio of the geometric means of two sets of positive numbers, one of all pairs among `num_compared` sets.

    The intervals of all these pairs together have the confidence, so that they hold for the pair of the fastest and another although the
    fastest was chosen by the same numbers. They are computed on logarithms, by Student's t at Bonferroni's level.

    Arguments:
        repeat_noise: the noise of the difference from repeat to repeat, where more is known of it than these two sets show. Default: that
            of the differences of pairs, or of independent sets (Welch).
        session_noise: the noise of the difference from session to session where the runs are of several sessions. The interval is then at
            least as wide as Student's with it at the same level, and holds for sessions in general.
    """
    upper, lower = np.log(np.asarray(above, float)), np.log(np.asarray(below, float))
    num_above, num_below = len(upper), len(lower)
    difference = float(upper.mean() - lower.mean())
    if min(num_above, num_below) < MIN_RUNS_WITH_INTERVAL:
        return Ratio(float(np.exp(difference)), None, None, num_above, num_below, paired)
    noises = present([repeat_noise or _noise(upper, lower, paired), session_noise])
    reach = max(_reach(noise, math.comb(num_compared, 2)) for noise in noises)
    value, low, high = (float(np.exp(difference + part)) for part in (0.0, -reach, reach))
    return Ratio(value, low, high, num_above, num_below, paired)


def repeat_noise(logarithms: np.ndarray) -> Noise:
    """Returns the noise of the difference of the means of the first two sets, from logarithms by repeat (rows) and set (columns).

    What a repeat has in common for all sets cancels. A set may vary more than the others, but a few repeats also make a set look steadier
    than it is, so that the variance of a set is its own or the median of all sets, whichever is larger. Its own is known with as many
    degrees of freedom as repeats, less one, the median with those of all sets, and the sum with no more. Of two sets this is the noise of
    their differences.
    """
    variances, freedom = _interactions(logarithms)
    median, num_repeats = float(np.median(variances)), len(logarithms)
    noise = _added(
        [Noise(max(float(variance), median) / num_repeats, num_repeats - 1 if variance > median else freedom) for variance in variances[:2]]
    )
    return noise._replace(freedom=min(noise.freedom, freedom))


def session_noises(means: np.ndarray) -> list[Noise]:
    """Returns the noise of each set's mean over sessions, from the means of logarithms by session (rows) and set (columns).

    The session is a random effect: in each, every set is faster or slower by an amount of its own, which repeats within the session do
    not show. What sessions have in common for all sets cancels. A set may vary more than the others, but a few sessions also make a set
    look steadier than it is, so that the variance of a set is its own or that of all sets together, whichever is larger. There is no noise
    from fewer than two sessions or sets.
    """
    if min(means.shape) < 2:
        return []
    variances, freedom = _interactions(means)
    return [Noise(max(float(variance), float(variances.mean())) / len(means), freedom) for variance in variances]


def _interactions(logarithms: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns the variance of each column that is not common to all, and the degrees of freedom with which all are known together.

    It is the interaction of a two-way analysis of variance of at least two rows and two columns.
    """
    num_rows, num_sets = logarithms.shape
    interaction = logarithms - logarithms.mean(axis=0) - logarithms.mean(axis=1, keepdims=True) + logarithms.mean()
    freedom = (num_rows - 1) * (num_sets - 1)
    return (interaction**2).sum(axis=0) * num_sets / freedom, freedom


def summed(noises: Sequence[Noise]) -> Noise:
    """Returns the noise of a sum or difference of means whose noises, known with equal freedom, do not depend on each other."""
    return Noise(sum(noise.variance for noise in noises), noises[0].freedom)


def _noise(above: np.ndarray, below: np.ndarray, paired: bool) -> Noise:
    """Returns the noise of the difference of two means, from the pairs or from each set by itself (Welch and Satterthwaite)."""
    if paired:
        return Noise(float((above - below).var(ddof=1)) / len(above), len(above) - 1)
    return _added([Noise(float(side.var(ddof=1)) / len(side), len(side) - 1) for side in (above, below)])


def _added(noises: Sequence[Noise]) -> Noise:
    """Returns the noise of a sum or difference of means whose noises do not depend on each other (Welch and Satterthwaite)."""
    variance = sum(noise.variance for noise in noises)
    # Without any variance the degrees of freedom do not matter.
    freedom = variance**2 / sum(noise.variance**2 / noise.freedom for noise in noises) if variance else 1
    return Noise(variance, freedom)


def _reach(noise: Noise, num_pairs: int = 1) -> float:
    """Returns how far the interval of a difference, one of `num_pairs`, reaches to either side."""
    return _bonferroni(num_pairs, round(noise.freedom, 1)) * noise.variance**0.5


@functools.cache
def _bonferroni(num_pairs: int, freedom: float) -> float:
    """Returns the number of standard errors to either side of one of `num_pairs` differences, each with a variance of its own."""
    from scipy.stats import t

    return float(t.ppf(1 - (1 - CONFIDENCE) / 2 / num_pairs, freedom))


def coverage(num_runs: int) -> float:
    """Returns the largest possible coverage of an interval from `num_runs` runs, which cannot be wider than their range.

    The range of n runs misses the true median where all n fall on one side of it: probability 2^(1-n).
    """
    return min(1 - 2.0 ** (1 - num_runs), CONFIDENCE)
