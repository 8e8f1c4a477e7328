"""What reading the samples from disk costs, by format."""

from collections.abc import Iterable, Iterator

from common.terminal import filled
from launch.report.entries import Entry
from launch.report.findings import MB, MILLI, Cells, Findings, in_unit
from launch.report.runs import Runs

QUESTION = "What does reading the data from disk cost?"


def answer(runs: Runs) -> Findings:
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
