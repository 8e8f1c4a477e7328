"""What writing and reading checkpoints costs. Pure."""

from launch.report import statistics
from launch.report.tables import BACKEND, RANKS, Column, filled

QUESTION = "What do checkpoints cost?"
MB = 10**6
COLUMNS = (
    BACKEND, RANKS, Column("in the background"), Column("checkpoints"), Column("size (MB)", ".1f"), Column("gathering each (s)", ".3f"),
    Column("writing each (s)", ".3f"), Column("writing (MB/s)", ".0f"), Column("reading (MB/s)", ".0f"),
    Column("training stood for (s)", ".3f"),
)  # fmt: skip


def answer(compared):
    """(sentences, tables) of the comparisons with runs that wrote or read checkpoints."""
    tables = []
    for one in compared:
        with_files = [(entry, records) for entry in one.entries if (records := [record for record in entry.ok if record.checkpoint_io])]
        tables += filled(one.name, COLUMNS, [_row(*each) for each in with_files])
    return [], tables


def _row(entry, records):
    is_async = records[0].settings.checkpoint_async
    measured = [record.checkpoint_io for record in records]

    def typical(above, below):
        known = [above(files) / below(files) for files in measured if below(files)]
        return float(statistics.typical(known)) if known else None

    def stood(files):
        return files.gather_seconds + files.read_seconds + files.wait_seconds + (0 if is_async else files.write_seconds)

    def writes(files):
        return files.num_writes

    return (
        entry.backend, entry.num_ranks, "yes" if is_async else "no", max(map(writes, measured)),
        typical(lambda files: files.written_bytes / MB, writes), typical(lambda files: files.gather_seconds, writes),
        typical(lambda files: files.write_seconds, writes),
        typical(lambda files: files.written_bytes / MB, lambda files: files.write_seconds),
        typical(lambda files: files.read_bytes / MB, lambda files: files.read_seconds), typical(stood, lambda files: 1),
    )  # fmt: skip
