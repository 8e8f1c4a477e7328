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
        with_files = [(entry, runs) for entry in one.entries if (runs := [run for run in entry.ok if run.get("checkpoint_io")])]
        tables += filled(one.name, COLUMNS, [_row(*each) for each in with_files])
    return [], tables


def _row(entry, runs):
    is_async = bool(runs[0]["settings"].get("checkpoint_async"))
    found = [run["checkpoint_io"] for run in runs]

    def typical(above, below):
        known = [above(one) / below(one) for one in found if below(one)]
        return float(statistics.typical(known)) if known else None

    def stood(one):
        return one["gather_seconds"] + one["read_seconds"] + one["wait_seconds"] + (0 if is_async else one["write_seconds"])

    def writes(one):
        return one["num_writes"]

    return (
        entry.backend, entry.num_ranks, "yes" if is_async else "no", max(map(writes, found)),
        typical(lambda one: one["written_bytes"] / MB, writes), typical(lambda one: one["gather_seconds"], writes),
        typical(lambda one: one["write_seconds"], writes), typical(lambda one: one["written_bytes"] / MB, lambda one: one["write_seconds"]),
        typical(lambda one: one["read_bytes"] / MB, lambda one: one["read_seconds"]), typical(stood, lambda one: 1),
    )  # fmt: skip
