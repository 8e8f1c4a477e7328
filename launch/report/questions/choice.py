"""What each backend has to offer at each size: time, state, traffic, exactness, and what it changes in a program."""

from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from typing import NamedTuple

from common.backends import file_of
from common.declarations import declared
from common.record.definition import Record
from common.terminal import Column, Table, filled
from common.words import ranks_of
from launch.report import environments, measures, volumes
from launch.report.entries import Comparison, Entry
from launch.report.environments import Limit
from launch.report.questions import step
from launch.report.tables import BACKEND, MB, MIB, NOT_MEASURED, RANKS, apart, in_unit, through

TERA = 10**12
# The share of the peak of a run that is faster.
FAULTY = "measured wrongly"


class Row(NamedTuple):
    """An entry, its comparison, and the limits of the machine (launch/report/environments.py)."""

    comparison: Comparison
    entry: Entry
    limit_of: dict[Hashable, Limit]

    def volume(self, volume_of: Callable[[Record], float | None], unit: float) -> float | None:
        """Returns the trimmed mean of a function of launch/report/volumes.py."""
        return in_unit(self.entry.trimmed_mean(volume_of), unit)

    @property
    def exposed_percent(self) -> float | str | None:
        """The exposed share of a step; None where its interval has 0 or there is none."""
        return step.exposed_percent(self.comparison, self.entry) if step.parts(self.comparison, self.entry) else NOT_MEASURED

    @property
    def share_of_limit(self) -> float | None:
        """The FLOP/s of a rank as a share of the machine's limit, which is the fastest product of any library and in any of the records."""
        return environments.share_of_limit(self.entry.trimmed_mean(FLOPS_PER_SECOND), self.entry.ok, self.limit_of)

    @property
    def percent_of_peak(self) -> float | str | None:
        """The share of the limit, which can be no number above 100."""
        share = self.share_of_limit
        return FAULTY if share is not None and share > 1 else share and 100 * share

    @property
    def change(self) -> str | None:
        """What the backend takes in a program for one process."""
        declaration = declared().get(file_of(self.entry.backend))
        return declaration and declaration.change


FLOPS_PER_SECOND = attrgetter("flops_per_second_per_rank")
FIRST: tuple[Column[Row], ...] = (
    *through("entry", BACKEND, RANKS),
    Column("seconds per epoch", lambda row: measures.epoch_seconds(row.entry), ".3f"),
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


def rows(comparison: Comparison, chosen: Iterable[Entry], limit_of: dict[Hashable, Limit]) -> list[Row]:
    """Returns a row for each of a comparison's entries."""
    return [Row(comparison, entry, limit_of) for entry in chosen]


def faults(comparison: Comparison, limit_of: dict[Hashable, Limit]) -> list[str]:
    """Returns a sentence on each entry whose training is faster than the machine's limit, which nothing is."""
    return [
        f"{comparison.name}, {row.entry.backend} at {ranks_of(row.entry.num_ranks)}: training computes {share:.2f} times as fast as the "
        "fastest matrix product; one of both is measured wrongly."
        for row in rows(comparison, comparison.entries, limit_of)
        if (share := row.share_of_limit) and share > 1
    ]


def tables(comparison: Comparison, limit_of: dict[Hashable, Limit]) -> list[Table]:
    """Returns the tables of a comparison's entries with completed runs; those that are oversubscribed have their own."""
    chosen = []
    for title, ran in apart(f"{comparison.name}: which to choose", [entry for entry in comparison.entries if entry.ok]):
        of_table = rows(comparison, ran, limit_of)
        measured = [column for column in THROUGHPUT if any(column.value_of(row) is not None for row in of_table)]
        chosen += filled(title, (*FIRST, *measured, *COLUMNS), of_table)
    return chosen


def _or_not_measured(value: float | None) -> float | str:
    return NOT_MEASURED if value is None else value


def _collectives(entry: Entry) -> str | None:
    """Returns the collectives by which a rank sends, with the MB of each, the largest first, of the first run that has them."""
    sent_bytes = next((sent for record in entry.ok if (sent := volumes.sent_by_collective(record))), {})
    texts = {name: f"{size / MB:.2f}" for name, size in sorted(sent_bytes.items(), key=lambda item: -item[1])}
    return ", ".join(f"{name.replace('_', '-')} {text}" for name, text in texts.items() if float(text)) or None
