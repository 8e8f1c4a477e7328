"""Where the time of a step goes, from the step breakdowns of the records."""

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from common.record.definition import Record
from common.record.parts import Library
from common.terminal import Column, filled
from common.words import ranks_of
from launch.report import epochs, measures, statistics
from launch.report.entries import Comparison, Entry
from launch.report.statistics import Difference
from launch.report.tables import BACKEND, MB, RANKS, Findings, apart, in_unit, milliseconds, through
from launch.report.words import span

BUBBLE = {"num_stages", "num_microbatches", "bubble_fraction", "bubble_fraction_in_theory"}
QUESTION = "Where does the time of a step go?"
OVERHEAD, EXPOSED = "overhead at 1 rank", "exposed communication"
PARTS = ("data wait", "compute", OVERHEAD, EXPOSED)
Interval = tuple[float, float]


def mean_over_ranks(key: str) -> Callable[[Record], float | None]:
    """Returns a function that gives the mean over the ranks of a value of a record's step breakdown, None without a step breakdown."""
    values_of = attrgetter(key)
    return lambda record: statistics.mean(values_of(record.step_breakdown)) if record.step_breakdown else None


breakdown_step_seconds = mean_over_ranks("step_seconds")
data_wait_seconds = mean_over_ranks("data_wait_seconds")
compute_seconds = mean_over_ranks("compute_seconds")
communication_seconds = mean_over_ranks("communication_seconds")
# The seconds of OVERHEAD and EXPOSED together.
added_seconds = mean_over_ranks("communication_exposed_seconds")


class Row(NamedTuple):
    """An entry with a step breakdown, and its comparison."""

    comparison: Comparison
    entry: Entry

    @property
    def parts(self) -> dict[str, float | None]:
        """The milliseconds of each of PARTS."""
        return parts(self.comparison, self.entry)

    @property
    def timed_step_seconds(self) -> float | None:
        """The seconds of a step of the timed training, of the runs with a step breakdown."""
        return self.entry.trimmed_mean(lambda record: epochs.timed_step_seconds(record) if record.step_breakdown else None)


class Bubble(NamedTuple):
    """An entry that is a pipeline, and the bubbles of its runs, as frameworks/shared/pytorch/pipeline_stages.py measured them."""

    entry: Entry
    of_runs: list[Library]


def _milliseconds(value_of: Callable[[Record], float | None]) -> Callable[[Row], float | None]:
    return lambda row: milliseconds(_mean(value_of, row.entry))


def _part(part: str, row: Row) -> float | None:
    return row.parts[part]


def _bytes_sent(record: Record) -> float | None:
    breakdown = record.step_breakdown
    return sum(operation.num_bytes for operation in breakdown.operations.values()) if breakdown else None


def _bandwidth(key: str) -> Callable[[Row], float | None]:
    """Returns a function that gives the MB/s of an entry by a key of the step breakdown."""
    bytes_per_second = attrgetter(key)
    return lambda row: in_unit(
        row.entry.trimmed_mean(lambda record: bytes_per_second(record.step_breakdown) if record.step_breakdown else None), MB
    )


def _interval_text(interval: Interval | None) -> str | None:
    return interval and "{:.1f} to {:.1f}".format(*interval)


COLUMNS: tuple[Column[Row], ...] = (
    *through("entry", BACKEND, RANKS),
    Column("step in training (ms)", lambda row: milliseconds(row.timed_step_seconds), ".2f"),
    Column("step in breakdown (ms)", _milliseconds(breakdown_step_seconds), ".2f"),
    *(Column(f"{part} (ms)", partial(_part, part), ".2f") for part in PARTS),
    Column("overhead, 95 % interval (ms)", lambda row: _interval_text(overhead_interval(*row))),
    Column("exposed, 95 % interval (ms)", lambda row: _interval_text(exposed_interval(*row))),
    Column("communication (ms)", _milliseconds(communication_seconds), ".2f"),
    Column("sent (MB)", lambda row: in_unit(row.entry.trimmed_mean(_bytes_sent), MB), ".2f"),
    Column("bus bandwidth (MB/s)", _bandwidth("bus_bytes_per_second"), ".0f"),
    Column("bus bandwidth, plain all-reduce (MB/s)", _bandwidth("plain_bus_bytes_per_second"), ".0f"),
)
BUBBLE_COLUMNS: tuple[Column[Bubble], ...] = (
    *through("entry", BACKEND, RANKS),
    Column("stages of a model", lambda row: row.of_runs[0]["num_stages"], "d"),
    Column("micro-batches", lambda row: row.of_runs[0]["num_microbatches"], "d"),
    Column(
        "bubble, measured (%)",
        lambda row: statistics.trimmed_mean(100 * bubble["bubble_fraction"] for bubble in row.of_runs),
        ".0f",
    ),
    Column("bubble, in theory (%)", lambda row: 100 * row.of_runs[0]["bubble_fraction_in_theory"], ".0f"),
)


def answer(comparison: Comparison) -> Findings:
    """Answers for the entries of a comparison with a step breakdown."""
    broken_down = [entry for entry in comparison.entries if parts(comparison, entry)]
    tables = []
    for title, chosen in apart(comparison.name, broken_down):
        tables += filled(title, COLUMNS, [Row(comparison, entry) for entry in chosen])
        pipelines = [Bubble(entry, bubbles) for entry in chosen if (bubbles := _bubbles(entry))]
        tables += filled(f"Pipeline bubble: {title}", BUBBLE_COLUMNS, pipelines)
    return Findings(_sentences(comparison, [entry for entry in broken_down if not entry.oversubscribed]), tables)


def parts(comparison: Comparison, entry: Entry) -> dict[str, float | None]:
    """Returns the milliseconds of each of PARTS in an entry's step; empty without a step breakdown.

    They are means over the ranks and the runs, so that they add up to the step.
    """
    exposed = _exposed(comparison, entry)
    if exposed is None:
        return {}
    overhead = _overhead(comparison, entry)
    seconds = [_mean(data_wait_seconds, entry), _mean(compute_seconds, entry), overhead and overhead.value, exposed.value]
    return {part: milliseconds(value) for part, value in zip(PARTS, seconds, strict=True)}


def overhead_interval(comparison: Comparison, entry: Entry) -> Interval | None:
    """Returns the 95 % interval of OVERHEAD in milliseconds; None where the backend has fewer than 3 runs at 1 rank."""
    return _interval(_overhead(comparison, entry))


def exposed_interval(comparison: Comparison, entry: Entry) -> Interval | None:
    """Returns the 95 % interval of EXPOSED in milliseconds; None at 1 rank, and where either size has fewer than 3 runs."""
    return None if entry.num_ranks == 1 or _overhead(comparison, entry) is None else _interval(_exposed(comparison, entry))


def _overhead(comparison: Comparison, entry: Entry) -> Difference | None:
    """Returns OVERHEAD, what a backend adds to a step at 1 rank, where nothing is exchanged; None where it did not run at 1 rank."""
    single_rank = comparison.entry(entry.backend, 1)
    values = statistics.present(map(added_seconds, single_rank.ok)) if single_rank else []
    return statistics.difference(values, [0.0] * len(values), paired=True) if values else None


def _exposed(comparison: Comparison, entry: Entry) -> Difference | None:
    """Returns EXPOSED, what more ranks add to OVERHEAD, and all that a backend adds where it did not run at 1 rank.

    It is None without a step breakdown.
    """
    added_by_run, added_at_1_rank = (
        measures.values_by_key(of_size, added_seconds) for of_size in (entry, comparison.entry(entry.backend, 1))
    )
    if added_by_run and added_at_1_rank:
        return statistics.difference(*measures.sides(added_by_run, added_at_1_rank))
    added = list(added_by_run.values())
    return statistics.difference(added, [0.0] * len(added), paired=True) if added else None


def _mean(value_of: Callable[[Record], float | None], entry: Entry) -> float | None:
    return statistics.mean(map(value_of, entry.ok))


def _interval(seconds: Difference | None) -> Interval | None:
    if seconds is None or seconds.low is None or seconds.high is None:
        return None
    return 1000 * seconds.low, 1000 * seconds.high


def exposed_percent(comparison: Comparison, entry: Entry) -> float | None:
    """Returns EXPOSED as a share of an entry's step; None without a step breakdown, and where its interval has 0 or there is none."""
    milliseconds_of, interval = parts(comparison, entry), exposed_interval(comparison, entry)
    exposed = milliseconds_of.get(EXPOSED)
    if not interval or interval[0] <= 0 or exposed is None:
        return None
    return 100 * exposed / sum(statistics.present(milliseconds_of.values()))


def _bubbles(entry: Entry) -> list[Library]:
    """Returns the bubbles of an entry's runs; nothing unless it is a pipeline."""
    breakdowns = statistics.present(record.step_breakdown for record in entry.ok)
    return [breakdown.library for breakdown in breakdowns if breakdown.library.keys() >= BUBBLE]


def _sentences(comparison: Comparison, fair: Iterable[Entry]) -> list[str]:
    """Returns a sentence on exposed communication at each size from 2 ranks on."""
    by_size: dict[int, list[Entry]] = {}
    for entry in fair:
        if entry.num_ranks > 1:
            by_size.setdefault(entry.num_ranks, []).append(entry)
    return [f"{comparison.name}, {ranks_of(size)}: {EXPOSED} {_describe_exposed(comparison, by_size[size])}." for size in sorted(by_size)]


def _describe_exposed(comparison: Comparison, of_size: Iterable[Entry]) -> str:
    """Describes its share of a step, or as measured where there is no interval."""
    of_size = list(of_size)
    shares = {entry.backend: share for entry in of_size if (share := exposed_percent(comparison, entry)) is not None}
    if shares:
        return f"is {span(shares, '{:.0f} %')} of a step"
    if any(exposed_interval(comparison, entry) for entry in of_size):
        return "is not shown"
    measured = {entry.backend: exposed for entry in of_size if (exposed := parts(comparison, entry).get(EXPOSED)) is not None}
    return f"is {span(measured, '{:.1f} ms')} of a step as measured, without an interval"
