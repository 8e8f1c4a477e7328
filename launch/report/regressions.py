"""Two sets of records of one matrix, before and after a change: what got slower, less accurate, larger, beyond the noise. Pure."""

from typing import NamedTuple

from common.errors import UserError
from launch.display import ranks_of
from launch.report import comparable, entries, statistics
from launch.report.tables import APART, BACKEND, INTERVAL, MIB, RANKS, Column, Section, filled, interval

QUESTION = "What changed against the baseline?"
COLUMNS = (
    Column("comparison"), BACKEND, RANKS, Column("what"), Column("before", ".4g"), Column("after", ".4g"), Column("after / before", ".3f"),
    INTERVAL, Column("verdict"),
)  # fmt: skip
WORSE, BETTER, LEVEL, UNKNOWN = "worse", "better", "no difference shown", "not judged: one run"


class Measure(NamedTuple):
    """Something that may get worse, and the word for it. `key` is a record's, None for the time to solution, told in units of `unit`.

    A relative change within the tolerance is not worth a failed acceptance test, however sure it is.
    """

    name: str
    word: str
    key: str | None
    unit: int
    more_is_worse: bool
    tolerance: float


MEASURES = (
    Measure("time to solution (s)", "slower", None, 1, True, 0.05),
    Measure("samples/s", "slower", "samples_per_second", 1, False, 0.05),
    Measure("accuracy", "less accurate", "accuracy", 1, False, 0.01),
    Measure("peak memory per rank (MiB)", "larger", "peak_memory_bytes", MIB, True, 0.05),
)
# What an entry that came to nothing has no number of.
VITAL = {None, "samples_per_second"}


class Change(NamedTuple):
    """One measure of one entry in both sets. `ratio` is a statistics.Ratio, after / before; None where one side has no number."""

    comparison: str
    backend: str
    ranks: int
    shared: bool
    measure: Measure
    before: float | None
    after: float | None
    ratio: statistics.Ratio | None
    verdict: str


def changes(found, old):
    """The changes of all entries of the old set of records.

    An entry is worse where the 95 % interval of its ratio leaves out 1 and the ratio is beyond the tolerance, and where it has no number
    any more, also for want of runs. Where one side is of one run, nothing is known of the noise, and it is not judged.
    Raises UserError where the two sets are not of one training, or have no entry in common.
    """
    (found, _), (old, _) = entries.divided(found), entries.divided(old)
    comparable.check([*found, *old])
    after = {one.name: one for one in entries.comparisons(found)}
    pairs = [
        (one.name, base, after[one.name].entry(base.backend, base.ranks) if one.name in after else None)
        for one in entries.comparisons(old) for base in one.entries
    ]  # fmt: skip
    if not any(entry for _, _, entry in pairs):
        raise UserError("the baseline and the results have no backend, workload and size in common; run the same matrix for both")
    return [change for name, base, entry in pairs for measure in MEASURES if (change := _change(name, base, entry, measure))]


def _change(name, base, entry, measure):
    before, after = _number(base, measure), _number(entry, measure)
    # To 0, as of an accuracy, there is no ratio, and nothing is worse.
    if not before or (after is None and measure.key not in VITAL):
        return None
    if after is None:
        ratio, verdict = None, WORSE
    else:
        ratio = entries.time_ratio(entry, base) if measure.key is None else entries.value_ratio(entry, base, measure.key)
        verdict = _verdict(ratio, measure)
    shared = base.oversubscribed or bool(entry and entry.oversubscribed)
    return Change(name, base.backend, base.ranks, shared, measure, before, after, ratio, verdict)


def _number(entry, measure):
    found = entry and (entries.time_of(entry) if measure.key is None else entries.typical(entry, measure.key))
    return found / measure.unit if found is not None else None


def _verdict(ratio, measure):
    if ratio.is_difference is None:
        return UNKNOWN
    if not ratio.is_difference or abs(ratio.value - 1) <= measure.tolerance:
        return LEVEL
    return WORSE if (ratio.value > 1) == measure.more_is_worse else BETTER


def worse(found):
    """One line for each change to the worse."""
    return [_told(change) for change in found if change.verdict == WORSE]


def _told(change):
    where = f"{change.comparison}, {ranks_of(change.ranks)}: {change.backend}"
    name = change.measure.name
    if change.ratio is None:
        return f"{where} had {change.before:.4g} {name} and has none."
    return (
        f"{where} got {change.measure.word}: {name} {change.before:.4g} before, {change.after:.4g} after "
        f"({100 * (change.ratio.value - 1):+.1f} %, 95 % interval of the ratio {interval(change.ratio)})."
    )


def section(found):
    """The changes as a Section of the report, those to the worse as its sentences."""
    sentences = worse(found)
    num_unknown = sum(change.verdict == UNKNOWN for change in found)
    if not sentences and num_unknown < len(found):
        sentences.append("Nothing that could be judged got slower, less accurate or larger beyond the noise.")
    if num_unknown:
        sentences.append(
            f"{num_unknown} of {len(found)} numbers are of one run on a side and could not be judged: "
            f"--repeats {statistics.SURE_FROM} makes it possible."
        )
    tables = []
    for title, shared in (("Changes", False), (f"Changes, {APART}", True)):
        tables += filled(title, COLUMNS, [_row(change) for change in found if change.shared == shared])
    return Section("baseline", QUESTION, sentences, tables)


def _row(change):
    ratio = change.ratio
    return (
        change.comparison, change.backend, change.ranks, change.measure.name, change.before, change.after, ratio and ratio.value,
        interval(ratio), change.verdict,
    )  # fmt: skip
