"""What writing and reading checkpoints costs. Pure."""

from launch.report import statistics
from launch.report.tables import BACKEND, MB, RANKS, Column, filled

QUESTION = "What do checkpoints cost?"
COLUMNS = (
    BACKEND, RANKS, Column("in the background"), Column("checkpoints"), Column("size (MB)", ".1f"), Column("gathering each (s)", ".3f"),
    Column("writing each (s)", ".3f"), Column("writing (MB/s)", ".0f"), Column("reading (MB/s)", ".0f"),
    Column("training stood for (s)", ".3f"),
)  # fmt: skip


def answer(comparison):
    """(sentences, tables) of a comparison with runs that wrote or read checkpoints."""
    records_of = [(entry, [record for record in entry.ok if record.checkpoint_io]) for entry in comparison.entries]
    return [], filled(comparison.name, COLUMNS, [_row(entry, records) for entry, records in records_of if records])


def _row(entry, records):
    is_async = records[0].settings.checkpoint_async
    costs = [record.checkpoint_io for record in records]

    def typical(above, below):
        return statistics.typical_or_none(above(cost) / below(cost) for cost in costs if below(cost))

    def stood(cost):
        return cost.gather_seconds + cost.read_seconds + cost.wait_seconds + (0 if is_async else cost.write_seconds)

    def writes(cost):
        return cost.num_writes

    return (
        entry.backend, entry.num_ranks, "yes" if is_async else "no", max(map(writes, costs)),
        typical(lambda cost: cost.written_bytes / MB, writes), typical(lambda cost: cost.gather_seconds, writes),
        typical(lambda cost: cost.write_seconds, writes),
        typical(lambda cost: cost.written_bytes / MB, lambda cost: cost.write_seconds),
        typical(lambda cost: cost.read_bytes / MB, lambda cost: cost.read_seconds), typical(stood, lambda cost: 1),
    )  # fmt: skip
