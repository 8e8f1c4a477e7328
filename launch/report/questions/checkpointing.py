"""What writing and reading checkpoints costs."""

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from common.record.parts import CheckpointIo
from common.terminal import Column, filled
from launch.report import statistics
from launch.report.entries import Comparison, Entry
from launch.report.tables import BACKEND, MB, RANKS, Findings, through

QUESTION = "What do checkpoints cost?"


class Row(NamedTuple):
    """An entry, and what checkpoints cost in those of its runs that wrote or read any."""

    entry: Entry
    costs: list[CheckpointIo]

    @property
    def is_async(self) -> bool:
        """Whether training goes on while a checkpoint is written."""
        return self.entry.records[0].settings.checkpoint_async

    def mean_ratio(self, above: Callable[[CheckpointIo], float], below: Callable[[CheckpointIo], float]) -> float | None:
        """Returns the trimmed mean of the ratio of two values over the runs; None where `below` is 0 in all of them."""
        return statistics.trimmed_mean(above(cost) / below(cost) for cost in self.costs if below(cost))

    def stood_seconds(self, cost: CheckpointIo) -> float:
        """Returns the seconds of a run in which training waited for its checkpoints."""
        return cost.gather_seconds + cost.read_seconds + cost.wait_seconds + (0 if self.is_async else cost.write_seconds)


NUM_WRITES, WRITE_SECONDS = attrgetter("num_writes"), attrgetter("write_seconds")
COLUMNS: tuple[Column[Row], ...] = (
    *through("entry", BACKEND, RANKS),
    Column("in the background", lambda row: "yes" if row.is_async else "no"),
    Column("checkpoints", lambda row: max(map(NUM_WRITES, row.costs))),
    Column("size (MB)", lambda row: row.mean_ratio(lambda cost: cost.written_bytes / MB, NUM_WRITES), ".1f"),
    Column("gathering each (s)", lambda row: row.mean_ratio(attrgetter("gather_seconds"), NUM_WRITES), ".3f"),
    Column("writing each (s)", lambda row: row.mean_ratio(WRITE_SECONDS, NUM_WRITES), ".3f"),
    Column("writing (MB/s)", lambda row: row.mean_ratio(lambda cost: cost.written_bytes / MB, WRITE_SECONDS), ".0f"),
    Column("reading (MB/s)", lambda row: row.mean_ratio(lambda cost: cost.read_bytes / MB, attrgetter("read_seconds")), ".0f"),
    Column("training stood for (s)", lambda row: statistics.trimmed_mean(map(row.stood_seconds, row.costs)), ".3f"),
)


def answer(comparison: Comparison) -> Findings:
    """Answers for the runs of a comparison that wrote or read checkpoints."""
    rows = [Row(entry, statistics.present(record.checkpoint_io for record in entry.ok)) for entry in comparison.entries]
    return Findings([], filled(comparison.name, COLUMNS, [row for row in rows if row.costs]))
