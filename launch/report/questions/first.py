"""Which backend reaches the target first, by time to solution, and which is fastest at each size, by seconds per epoch."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from common import metric
from common.terminal import filled
from common.words import listed, ranks_of
from launch.report import table
from launch.report.entries import NOT_REACHED, TIME, TIME_WITH_STARTUP, Comparison, Entry, epoch_ratio
from launch.report.findings import Cells, Findings
from launch.report.questions import cost
from launch.report.ratio_text import EQUAL, NO_DIFFERENCE, equality, in_percent, interval, runs_against
from launch.report.statistics import MIN_RUNS_CONFIDENT, Ratio

QUESTION = "Which backend reaches the target first?"
FASTEST = "fastest"
SLOWER = "slower"
APPROXIMATE = "approximate"
SMALLER_BATCH = "smaller global batch"
# The column of the throughput.
RATE = "samples_per_second"
# The most backends of a group that a sentence compares with the fastest.
NUM_NAMED = 3


class Result(NamedTuple):
    """What a backend at a size is compared by.

    `value` is its seconds to the target, or its samples a second in a workload without one; None for a miss. `ratio` is the ratio of its
    seconds per epoch to those of the fastest; None for the fastest itself. `has_smaller_batch`: under weak scaling, ranks that compute one
    model together get one batch, and data-parallel ones each their own. `miss`: why it is not compared.
    """

    entry: Entry
    value: float | None
    epoch_seconds: float | None
    ratio: Ratio | None = None
    has_smaller_batch: bool = False
    miss: str | None = None

    @property
    def backend(self) -> str:
        return self.entry.backend

    @property
    def startup_seconds(self) -> float | None:
        """The seconds from launch to the first step, which are in no other number."""
        return cost.startup_seconds(self.entry) if self.entry.ok else None

    @property
    def startup(self) -> str:
        """The seconds of start-up as text, such as `+4.4`; empty where they are not known."""
        seconds = self.startup_seconds
        return f"+{seconds:.{1 if seconds < 10 else 0}f}" if seconds else ""

    @property
    def num_repeats(self) -> int:
        """The number of runs, or of pairs, on which the verdict rests."""
        return min(self.ratio.num_above, self.ratio.num_below) if self.ratio else len(self.entry.records)

    @property
    def remark(self) -> str | None:
        """Why seconds per epoch alone do not show how it compares with the fastest; None where they do."""
        if not self.entry.exact:
            return APPROXIMATE
        return SMALLER_BATCH if self.has_smaller_batch else None

    @property
    def is_comparable(self) -> bool:
        """Whether seconds per epoch alone show how it compares with the fastest."""
        return not (self.miss or self.remark)

    @property
    def verdict(self) -> str | None:
        """Fastest, slower, no difference shown, or the reason why there is no verdict; None for a miss, and the fastest of too few runs."""
        if self.miss or self.remark:
            return None if self.miss else self.remark
        if self.ratio is None:
            return FASTEST if self.num_repeats >= MIN_RUNS_CONFIDENT else None
        if self.ratio.verdict is None:
            return f"none from {runs_against(self.ratio.num_above, self.ratio.num_below, self.ratio.paired)}"
        return equality(self.ratio) or SLOWER


class Group(NamedTuple):
    """The results of one size: the fastest by seconds per epoch first, those without a value last."""

    name: str
    num_ranks: int
    results: list[Result]

    @property
    def fastest(self) -> Result | None:
        """The result with the lowest seconds per epoch; None where none has a value."""
        return next((result for result in self.results if result.value is not None), None)

    @property
    def first(self) -> Result | None:
        """That of the backend that reached the target first, of those that train the same; the fastest where none of them did."""
        timed = [result for result in self.results if result.value is not None and result.is_comparable]
        # Without a target a value is a throughput, of which more is better.
        return min(timed, key=lambda result: (result.value or 0.0) * (-1 if result.entry.target is None else 1), default=self.fastest)

    @property
    def second(self) -> Result | None:
        """That of the backend that is compared with the fastest and comes next; None where there is none."""
        return next((result for result in self.results if result.ratio and result.is_comparable), None)

    @property
    def tied(self) -> list[Result]:
        """Those that are not shown to differ from the fastest."""
        return [result for result in self.results if result.verdict in (EQUAL, NO_DIFFERENCE)]


def answer(comparison: Comparison) -> Findings:
    """Answers for a comparison, in a sentence at its leading size. Oversubscribed entries are compared with each other alone."""
    leading = [f"{comparison.name}, {group.name}: {sentence(group)}" for group in leading_group(groups_of(comparison))]
    sizes = [entries for oversubscribed in (False, True) for entries in comparison.by_size(oversubscribed).values()]
    return Findings(leading, filled(comparison.name, [_row(result) for entries in sizes for result in ranked(entries)]))


def groups_of(comparison: Comparison) -> list[Group]:
    """Returns the groups of a comparison by size, those of oversubscribed entries only where there are no others."""
    by_size = comparison.by_size() or comparison.by_size(oversubscribed=True)
    return [Group(ranks_of(size), size, ranked(entries)) for size, entries in by_size.items()]


def leading_group(groups: Sequence[Group]) -> list[Group]:
    """Returns the group of the largest size at which a backend has a value, or the last one; nothing without any."""
    return [group for group in groups if group.fastest][-1:] or list(groups[-1:])


def ranked(entries: Sequence[Entry]) -> list[Result]:
    """Returns the results of all entries of one size: those of `results_of`, and then those without one, by seconds per epoch."""
    results = results_of(entries)
    compared = [result.entry for result in results]
    missing = [_missed(entry) for entry in entries if entry not in compared]
    return [*results, *sorted(missing, key=lambda result: result.epoch_seconds or math.inf)]


def _missed(entry: Entry) -> Result:
    """Returns why an entry has no value, with the best accuracy of runs that did not reach the target, and their seconds per epoch."""
    miss, seconds = (entry.misses or ["no time"])[0], entry.epoch_seconds
    accuracies = [record.accuracy for record in entry.ok if record.accuracy is not None]
    if miss == NOT_REACHED and accuracies:
        miss += f" ({metric.best(accuracies, entry.ok[0].lower_is_better):.3g})" + (f", {seconds:.2f} s an epoch" if seconds else "")
    return Result(entry, None, seconds, miss=miss)


def results_of(candidates: Iterable[Entry]) -> list[Result]:
    """Returns the results of the entries of one size that reached the target, if there is one, in the order of the answer.

    Exact backends come first, then those with a smaller global batch, and approximate ones.
    """
    timed = [
        Result(entry, entry.trimmed_mean(RATE) if entry.target is None else time, seconds)
        for entry in candidates
        if (seconds := entry.epoch_seconds) and ((time := entry.trimmed_mean(TIME)) is not None or entry.target is None)
    ]
    batch = max((result.entry.batch_ratio for result in timed), default=1)
    results = [result._replace(has_smaller_batch=result.entry.batch_ratio < batch) for result in timed]
    results.sort(key=lambda result: (not result.entry.exact, result.has_smaller_batch, result.epoch_seconds))
    compared = [result.entry for result in results]
    return results[:1] + [result._replace(ratio=epoch_ratio(result.entry, compared[0], compared)) for result in results[1:]]


def comparable(candidates: Iterable[Entry]) -> list[Entry]:
    """Returns the entries of one size that seconds per epoch alone compare, the fastest first."""
    return [result.entry for result in results_of(candidates) if result.is_comparable]


def sentence(group: Group) -> str:
    """Returns who is first in a group, how much longer the next backends and the last one take, and which have no value."""
    first, fastest = group.first, group.fastest
    if first is None or fastest is None or first.value is None:
        none = "no run completed" if all(result.entry.target is None for result in group.results) else "no backend reached the target"
        missed = [f"{result.backend} ({result.miss})" for result in group.results if result.epoch_seconds]
        return f"{none}: {'; '.join(missed)}." if missed else f"{none}."
    if first.entry.target is None:
        texts = [f"{first.backend} has the highest throughput, {first.value:.0f} samples a second"]
    else:
        texts = [f"{first.backend} reached the target first, in {first.value:.2f} s{f' ({first.remark})' if first.remark else ''}"]
    if first is not fastest:
        texts.append(f"By seconds per epoch {fastest.backend} is fastest")
    if tied := [result.backend for result in group.tied]:
        texts.append(f"No difference is shown from {listed(tied)}")
    slower = [result for result in group.results if result.ratio and result.is_comparable and result.backend not in tied]
    named = slower if len(slower) <= NUM_NAMED else [*slower[: NUM_NAMED - 1], slower[-1]]
    if named:
        percents = [in_percent(result.ratio).removeprefix("+") for result in named if result.ratio]
        further = [f"{result.backend}'s {percent}" for result, percent in zip(named[1:], percents[1:], strict=True)]
        texts.append(", ".join([f"{named[0].backend}'s epochs take {percents[0]} longer", *further]))
    if missing := [f"{result.backend} ({result.miss})" for result in group.results if result.miss]:
        texts.append(f"Without a time: {'; '.join(missing)}")
    return f"{'. '.join([*texts, *_with_startup(group.results, first.backend)])}."


def _with_startup(results: Iterable[Result], first: str) -> list[str]:
    """Returns the sentence on who is first where start-up counts; none where that is `first` too, or no matrix launched them."""
    seconds_of = {
        result.backend: seconds
        for result in results
        if result.is_comparable and (seconds := result.entry.trimmed_mean(TIME_WITH_STARTUP)) is not None
    }
    earliest = min(seconds_of, key=lambda backend: seconds_of[backend], default=first)
    return [f"With start-up {earliest} is first, in {seconds_of[earliest]:.2f} s"] if earliest != first else []


def _row(result: Result) -> Cells:
    entry, ratio = result.entry, result.ratio
    time, misses = entry.trimmed_mean(TIME), entry.misses
    num_reached = sum(table.valid_time_seconds(record) is not None for record in entry.records)
    reasons = f" ({listed(sorted(set(misses)))})" if misses else ""
    return entry.cells | {
        "transport": entry.transport,
        "time to solution (s)": next(iter(misses), None) if time is None else time,
        "with start-up (s)": entry.trimmed_mean(TIME_WITH_STARTUP),
        "epochs": entry.mean("epochs_to_target"),
        "seconds per epoch": result.epoch_seconds,
        "ratio to fastest": None if result.miss else ratio.value if ratio else 1.0,
        "95 % interval": interval(ratio),
        "verdict": result.verdict,
        "reached": f"{num_reached}/{len(entry.records)}{reasons}" if num_reached or misses else None,
        entry.metric: entry.trimmed_mean("accuracy"),
        "samples/s": entry.trimmed_mean(RATE),
    }
