"""Repeats of a matrix that something else on the machine disturbed, found from the times of their runs."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from common.record.definition import Record
from launch.report import entries, epochs
from launch.report.entries import Entry
from launch.report.noise import QUIET_PERCENT
from launch.report.statistics import MIN_RUNS_WITH_INTERVAL

# How many quiet matrices in a hundred have a repeat that seems disturbed, if normal noise exceeds QUIET_PERCENT. Others have fewer.
FALSE_PERCENT = 1.0
NUM_SIMULATED = 4000
SEED = 1
# The median absolute deviation of normal values times this is their standard deviation.
NORMAL_MAD = 1.4826
# Repeats that differ by less are equally quiet. It is a share of the time.
MIN_SCALE = 0.001


class Deviation(NamedTuple):
    """A run, and by how many percent its epochs took longer than the median of its backend and size."""

    record: Record
    percent: float


class Repeat(NamedTuple):
    """A repeat of a matrix beside the others.

    `percent`: how much slower it was, at the median of its runs. `runs`: its runs, those that were slowed down least first.
    """

    matrix: str
    comparison: str
    number: int
    percent: float
    runs: list[Deviation]
    is_disturbed: bool


class Scores(NamedTuple):
    """By repeat: how much slower it was than the median repeat, how unequally its runs were slowed down, and both over the usual.

    The first two are differences of logarithms.
    """

    effects: np.ndarray
    spreads: np.ndarray
    relative_effects: np.ndarray
    relative_spreads: np.ndarray


def disturbed(records: Iterable[Record]) -> list[Repeat]:
    """Returns the disturbed repeats of records."""
    return [repeat for repeat in judged(records) if repeat.is_disturbed]


def judged(records: Iterable[Record]) -> Iterator[Repeat]:
    """Yields each repeat of records that others of its matrix can be compared with: 3 repeats and 2 backends or sizes at least.

    The sizes that were side by side are judged together: other work on the machine may slow down only those that take all its cores.
    """
    for matrix, records_of_matrix in entries.matrices(record for record in records if entries.is_compared(record)).items():
        for comparison in entries.comparisons(records_of_matrix):
            by_size: dict[int | None, list[Entry]] = {}
            for entry in comparison.entries:
                by_size.setdefault(entry.num_ranks if entry.oversubscribed else None, []).append(entry)
            for side_by_side in by_size.values():
                yield from _judged(matrix, comparison.name, side_by_side)


def _judged(matrix: str, comparison: str, side_by_side: Sequence[Entry]) -> Iterator[Repeat]:
    """Yields the repeats of entries of a matrix that were side by side."""
    by_repeat = [{record.repeat: record for record in entry.from_start if epochs.seconds(record)} for entry in side_by_side]
    by_repeat = [records for records in by_repeat if len(records) >= MIN_RUNS_WITH_INTERVAL]
    if len(by_repeat) < 2:
        return
    numbers = sorted({number for records in by_repeat for number in records})
    seconds = [[epochs.seconds(records[number]) if number in records else None for number in numbers] for records in by_repeat]
    log_seconds = np.log(np.array(seconds, float))
    effects, percents = 100 * np.expm1(scores(log_seconds).effects), 100 * np.expm1(_deviations(log_seconds))
    are_disturbed = stand_out(log_seconds)
    for column, number in enumerate(numbers):
        runs = [Deviation(records[number], float(percents[row, column])) for row, records in enumerate(by_repeat) if number in records]
        runs.sort(key=lambda run: run.percent)
        yield Repeat(matrix, comparison, number, float(effects[column]), runs, bool(are_disturbed[column]))


def stand_out(log_seconds: np.ndarray) -> np.ndarray:
    """Returns which repeats (columns) are disturbed, from the logarithms of the seconds of an epoch of each backend and size (rows).

    Such a repeat is more than QUIET_PERCENT slower than the median repeat, or its runs are slowed down that unequally, and it is so
    further than any repeat of a quiet matrix of as many rows and columns, in all but FALSE_PERCENT of them. NaN: there is no such run.
    """
    limit = np.log1p(QUIET_PERCENT / 100)
    measured = scores(log_seconds)
    is_far = measured.effects > limit, measured.spreads > limit
    if not np.any(is_far):
        return np.zeros(log_seconds.shape[1], bool)
    max_effect, max_spread = _largest_by_chance(*log_seconds.shape)
    return (is_far[0] & (measured.relative_effects > max_effect)) | (is_far[1] & (measured.relative_spreads > max_spread))


def scores(log_seconds: np.ndarray) -> Scores:
    """Returns the Scores of repeats, which are the last dimension; the one before is that of backends and sizes.

    Medians divide the times into those of rows, of columns and residuals (Tukey, Exploratory Data Analysis, 1977, chapter 11), since a
    disturbed repeat does not shift them. The scale of effects is their median absolute deviation, that of spreads their median.
    """
    deviations = _deviations(log_seconds)
    effects = np.nanmedian(deviations, axis=-2)
    spreads = np.nanmean((deviations - effects[..., None, :]) ** 2, axis=-2) ** 0.5
    effects -= np.median(effects, axis=-1, keepdims=True)
    effect_scales = NORMAL_MAD * np.median(np.abs(effects), axis=-1, keepdims=True)
    spread_scales = np.median(spreads, axis=-1, keepdims=True)
    return Scores(effects, spreads, effects / np.maximum(effect_scales, MIN_SCALE), spreads / np.maximum(spread_scales, MIN_SCALE))


def _deviations(log_seconds: np.ndarray) -> np.ndarray:
    """Returns the differences to the median of each backend and size."""
    return log_seconds - np.nanmedian(log_seconds, axis=-1, keepdims=True)


@functools.cache
def _largest_by_chance(num_rows: int, num_repeats: int) -> tuple[float, float]:
    """Returns the largest relative effect and spread of any repeat in all but FALSE_PERCENT of simulated matrices with normal noise."""
    simulated = scores(np.random.default_rng(SEED).standard_normal((NUM_SIMULATED, num_rows, num_repeats)))
    # Either of the two may be exceeded by chance.
    percent = 100 - FALSE_PERCENT / 2
    effect, spread = (float(np.percentile(values.max(axis=-1), percent)) for values in simulated[2:])
    return effect, spread
