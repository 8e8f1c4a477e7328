"""What reading the samples from disk costs, by format, and what writing and reading checkpoints costs."""

from collections.abc import Iterable, Iterator, Sequence

from common.record.parts import CheckpointIo
from common.terminal import filled
from launch.report import statistics
from launch.report.entries import Comparison, Entry
from launch.report.findings import MB, MILLI, Cells, Findings, in_unit
from launch.report.runs import Runs

READING = "What does reading the data from disk cost?"
CHECKPOINTS = "What do checkpoints cost?"


def reading(runs: Runs) -> Findings:
    """Answers for the comparisons whose data was read from disk, with those of the same training in memory."""
    comparisons = runs.comparisons
    sentences, tables = [], []
    for title in dict.fromkeys(comparison.training for comparison in comparisons if comparison.reading):
        entries = [entry for comparison in comparisons if comparison.training == title for entry in comparison.entries if entry.ok]
        rows = [_reading_row(entry) for entry in entries]
        tables += filled(title, sorted(rows, key=lambda row: [row[name] for name in ("backend", "ranks", "format", "workers")]))
        sentences += _equality(title, entries)
    return Findings(sentences, tables)


def _reading_row(entry: Entry) -> Cells:
    settings = entry.records[0].settings
    wait, steps = entry.trimmed_mean("step_data_wait_seconds"), entry.trimmed_mean("mean_step_seconds")
    return entry.cells | {
        "format": settings.data_format,
        "workers": settings.num_workers,
        "data wait per step (ms)": in_unit(wait, MILLI),
        "share of the step (%)": 100 * wait / steps if wait is not None and steps else None,
        "samples read (MB/s)": in_unit(entry.trimmed_mean("read_bytes_per_second"), MB),
    }


def _equality(title: str, entries: Iterable[Entry]) -> Iterator[str]:
    """Yields whether runs that differ in nothing but how they read have the same losses, if there are any."""
    losses: dict[tuple, set[tuple]] = {}
    formats: dict[tuple, set[str]] = {}
    for record in (record for entry in entries for record in entry.from_start):
        key = record.workload_digest, record.backend, record.num_ranks, record.seed, len(record.losses)
        losses.setdefault(key, set()).add(tuple(record.losses))
        formats.setdefault(key, set()).add(record.settings.data_format)
    several = [key for key in losses if len(formats[key]) > 1]
    if several:
        names = ", ".join(sorted(set.union(*(formats[key] for key in several))))
        equal = all(len(losses[key]) == 1 for key in several)
        yield f"{title}: the losses with {names} are {'equal to the bit' if equal else 'not equal'}."


def checkpoints(comparison: Comparison) -> Findings:
    """Answers for the runs of a comparison that wrote or read checkpoints."""
    costs_of = [(entry, statistics.present(record.checkpoint_io for record in entry.ok)) for entry in comparison.entries]
    return Findings([], filled(comparison.name, [_checkpoints_row(entry, costs) for entry, costs in costs_of if costs]))


def _checkpoints_row(entry: Entry, costs: Sequence[CheckpointIo]) -> Cells:
    waits = [cost.gather_seconds + cost.read_seconds + cost.write_seconds for cost in costs]

    def ratio(above: str, below: str) -> float | None:
        return statistics.trimmed_mean(getattr(cost, above) / getattr(cost, below) for cost in costs if getattr(cost, below))

    return entry.cells | {
        "checkpoints": max(cost.num_writes for cost in costs),
        "size (MB)": in_unit(ratio("written_bytes", "num_writes"), MB),
        "gathering each (ms)": in_unit(ratio("gather_seconds", "num_writes"), MILLI),
        "writing each (ms)": in_unit(ratio("write_seconds", "num_writes"), MILLI),
        "writing (MB/s)": in_unit(ratio("written_bytes", "write_seconds"), MB),
        "reading (MB/s)": in_unit(ratio("read_bytes", "read_seconds"), MB),
        "training waited (s)": statistics.trimmed_mean(waits),
    }
