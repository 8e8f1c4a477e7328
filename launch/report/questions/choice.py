"""What each backend has to offer at each size: time, state, traffic, exactness, and what it changes in a program."""

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from common.backends import declared, file_of
from common.record.definition import Record
from launch.report import entries, statistics, volumes
from launch.report.entries import Comparison, Entry
from launch.report.questions import step
from launch.report.tables import BACKEND, MB, MIB, NOT_MEASURED, RANKS, Column, Table, apart, filled, in_unit, through

TERA = 10**12


class Row(NamedTuple):
    """An entry, its comparison, and the entries of its size, itself among them."""

    comparison: Comparison
    entry: Entry
    same_size: list[Entry]

    def volume(self, volume_of: Callable[[Record], float | None], unit: float) -> float | None:
        """Returns the trimmed mean of a function of launch/report/volumes.py."""
        return in_unit(self.entry.trimmed_mean(volume_of), unit)

    @property
    def exposed_percent(self) -> float | str | None:
        """The exposed share of a step; None where its interval has 0 or there is none."""
        return step.exposed_percent(self.comparison, self.entry) if step.parts(self.comparison, self.entry) else NOT_MEASURED

    @property
    def percent_of_peak(self) -> float | None:
        """The FLOP/s of a rank as a share of the peak, which is the most that matrix products reached in any entry of the size.

        The devices of these entries are the same, but one library may use them better.
        """
        rate = self.entry.trimmed_mean(FLOPS_PER_SECOND)
        peaks = statistics.present(entry.trimmed_mean(PEAK_FLOPS_PER_SECOND) for entry in self.same_size)
        return 100 * rate / max(peaks) if rate and self.entry.trimmed_mean(PEAK_FLOPS_PER_SECOND) else None

    @property
    def change(self) -> str | None:
        """What the backend takes in a program for one process."""
        declaration = declared().get(file_of(self.entry.backend))
        return declaration and declaration.change


FLOPS_PER_SECOND, PEAK_FLOPS_PER_SECOND = attrgetter("flops_per_second_per_rank"), attrgetter("peak_flops_per_second")
FIRST: tuple[Column[Row], ...] = (
    *through("entry", BACKEND, RANKS),
    Column("seconds per epoch", lambda row: entries.epoch_seconds(row.entry), ".3f"),
)
# These stand after FIRST where a run has them: images have no tokens.
THROUGHPUT: tuple[Column[Row], ...] = (
    Column("tokens/s", lambda row: row.entry.trimmed_mean(attrgetter("tokens_per_second")), ".0f"),
    Column("TFLOP/s per rank", lambda row: in_unit(row.entry.trimmed_mean(FLOPS_PER_SECOND), TERA), ".4g"),
    Column("share of peak (%)", attrgetter("percent_of_peak"), ".1f"),
)
COLUMNS: tuple[Column[Row], ...] = (
    Column("state per rank (MiB)", lambda row: _or_not_measured(row.volume(volumes.state_bytes, MIB)), ".2f"),
    Column("expected (MiB)", lambda row: row.volume(volumes.expected_state_bytes, MIB), ".2f"),
    Column("sent per step (MB)", lambda row: _or_not_measured(row.volume(volumes.sent_bytes, MB)), ".2f"),
    Column("by formula (MB)", lambda row: row.volume(volumes.expected_sent_bytes, MB), ".2f"),
    Column("by collective (MB)", lambda row: _collectives(row.entry)),
    Column("exposed share of a step (%)", attrgetter("exposed_percent"), ".0f"),
    Column("training", lambda row: "exact" if row.entry.exact else "approximate"),
    Column("change to the program", attrgetter("change")),
)


def tables(comparison: Comparison) -> list[Table]:
    """Returns the tables of a comparison's entries with completed runs; those that are oversubscribed have their own."""
    chosen = []
    for title, ran in apart(f"{comparison.name}: which to choose", [entry for entry in comparison.entries if entry.ok]):
        rows = [Row(comparison, entry, [candidate for candidate in ran if candidate.num_ranks == entry.num_ranks]) for entry in ran]
        measured = [column for column in THROUGHPUT if any(column.value_of(row) is not None for row in rows)]
        chosen += filled(title, (*FIRST, *measured, *COLUMNS), rows)
    return chosen


def _or_not_measured(value: float | None) -> float | str:
    return NOT_MEASURED if value is None else value


def _collectives(entry: Entry) -> str | None:
    """Returns the collectives by which a rank sends, with the MB of each, the largest first, of the first run that has them."""
    sent_bytes = next((sent for record in entry.ok if (sent := volumes.sent_by_collective(record))), {})
    texts = {name: f"{size / MB:.2f}" for name, size in sorted(sent_bytes.items(), key=lambda item: -item[1])}
    return ", ".join(f"{name.replace('_', '-')} {text}" for name, text in texts.items() if float(text)) or None
