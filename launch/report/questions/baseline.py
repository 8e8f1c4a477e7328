"""Sets of records of one matrix, before and after changes or there and here: what is slower, less accurate or larger beyond the noise."""

from collections.abc import Iterable
from typing import NamedTuple

from common.errors import UserError
from common.record.definition import Record
from common.terminal import filled
from common.words import ranks_of
from launch.report import environments, statistics
from launch.report.entries import TIME, Entry, value_ratio
from launch.report.findings import MIB, Cells, Section, in_unit
from launch.report.ratio_text import NO_DIFFERENCE, interval
from launch.report.runs import check_comparable, check_one_machine, comparisons, split
from launch.report.statistics import Ratio

KEY, QUESTION = "baseline", "What changed against the baseline?"
WORSE, BETTER, UNKNOWN = "worse", "better", "not judged: too few runs"


class Measure(NamedTuple):
    """A quantity that may regress, with its adjective. `column` of the table; values are divided by `unit`.

    A relative change within the tolerance is not a regression, however small its uncertainty. An entry that has lost a vital one is worse.
    """

    name: str
    word: str
    column: str
    unit: int
    more_is_worse: bool
    tolerance: float
    is_vital: bool


MEASURES = (
    Measure("time to solution (s)", "slower", TIME, 1, True, 0.05, True),
    Measure("samples/s", "slower", "samples_per_second", 1, False, 0.05, True),
    Measure("accuracy", "less accurate", "accuracy", 1, False, 0.01, False),
    Measure("peak memory per rank (MiB)", "larger", "peak_memory_bytes", MIB, True, 0.05, False),
)


class Change(NamedTuple):
    """One measure of an entry of the earlier set in both. The ratio is that of after to before, None where a side has no value."""

    comparison: str
    entry: Entry
    measure: Measure
    before: float
    after: float | None
    ratio: Ratio | None

    @property
    def verdict(self) -> str:
        """How the measure has changed, in words."""
        if self.after is None:
            return WORSE
        if self.ratio is None or self.ratio.is_difference is None:
            return UNKNOWN
        if not self.ratio.is_difference or abs(self.ratio.value - 1) <= self.measure.tolerance:
            return NO_DIFFERENCE
        return WORSE if (self.ratio.value > 1) == self.measure.more_is_worse else BETTER


class Compared(NamedTuple):
    """A set of records against an earlier one: when that began, the changes of its entries, and what differs in hardware and software."""

    began: str
    changes: list[Change]
    differences: str


def compare(records: list[Record], baseline: list[Record]) -> Compared:
    """Compares a set of records with an earlier one, which may be of another machine, by all entries that the earlier one has.

    An entry is worse where the 95 % interval of its ratio excludes 1 and the ratio is beyond the tolerance, and where it no longer has a
    value. With fewer than 3 runs on a side the noise is not known, and the change is not judged.
    Raises UserError where they trained different things or have no entry in common.
    """
    (after, _), (before, _) = split(records), split(baseline)
    check_one_machine(before)
    check_comparable([*after, *before])
    comparison_of = {comparison.name: comparison for comparison in comparisons(after)}
    pairs = [
        (earlier.name, base, later.entry(base.backend, base.num_ranks) if (later := comparison_of.get(earlier.name)) else None)
        for earlier in comparisons(before)
        for base in earlier.entries
    ]
    if not any(entry for _, _, entry in pairs):
        raise UserError("the baseline and the results have no backend, workload and size in common; run the same matrix for both")
    changes = [change for name, base, entry in pairs for measure in _measures(base) if (change := _change(name, base, entry, measure))]
    return Compared(min(record.started_at for record in baseline), changes, environments.changes(before, after))


def _measures(base: Entry) -> list[Measure]:
    """Returns MEASURES, with the metric of a user's file in place of the accuracy."""
    record = base.records[0]
    of_file = Measure(record.metric, "worse", "accuracy", 1, record.lower_is_better, 0.01, False)
    return [of_file if measure.name == "accuracy" != record.metric else measure for measure in MEASURES]


def _change(name: str, base: Entry, entry: Entry | None, measure: Measure) -> Change | None:
    before, after = (of and in_unit(of.trimmed_mean(measure.column), measure.unit) for of in (base, entry))
    # Relative to 0, as of an accuracy, or to a negative metric there is no ratio, and nothing is worse.
    if before is None or before <= 0 or (after is None and not measure.is_vital):
        return None
    return Change(name, base, measure, before, after, value_ratio(entry, base, measure.column))


def worse(changes: Iterable[Change]) -> list[str]:
    """Returns a sentence for each regression."""
    return [_sentence(change) for change in changes if change.verdict == WORSE]


def _sentence(change: Change) -> str:
    where = f"{change.comparison}, {ranks_of(change.entry.num_ranks)}: {change.entry.backend}"
    name = change.measure.name
    if change.ratio is None:
        return f"{where} had {change.before:.4g} {name} and has none."
    return (
        f"{where} is {change.measure.word}: {name} {change.before:.4g} before, {change.after:.4g} after "
        f"({100 * (change.ratio.value - 1):+.1f} %, 95 % interval of the ratio {interval(change.ratio)})."
    )


def section(compared: Compared) -> Section:
    """Returns the changes against the baseline as a section of the report, with the regressions as its sentences."""
    changes = compared.changes
    sentences = worse(changes)
    num_unknown = sum(change.verdict == UNKNOWN for change in changes)
    if not sentences and num_unknown < len(changes):
        sentences.append("Nothing that could be judged is slower, less accurate or larger beyond the noise.")
    if num_unknown:
        sentences.append(
            f"{num_unknown} of {len(changes)} numbers could not be judged: one side has fewer than "
            f"{statistics.MIN_RUNS_WITH_INTERVAL} runs. Use --repeats {statistics.MIN_RUNS_CONFIDENT}."
        )
    sentences.append(f"Changed since the matrix begun at {compared.began}: {compared.differences or 'no version and no commit'}.")
    return Section(KEY, QUESTION, sentences, filled("Changes", map(_row, changes)))


def _row(change: Change) -> Cells:
    return {
        "comparison": change.comparison,
        **change.entry.cells,
        "measure": change.measure.name,
        "before": change.before,
        "after": change.after,
        "after / before": change.ratio and change.ratio.value,
        "95 % interval": interval(change.ratio),
        "verdict": change.verdict,
    }
