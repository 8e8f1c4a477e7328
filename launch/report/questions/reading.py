"""What reading the samples from disk costs, by format."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from common.record.definition import Record
from common.terminal import Column, filled
from launch.report import statistics
from launch.report.entries import Comparison, Entry
from launch.report.questions import step
from launch.report.tables import BACKEND, MB, RANKS, Findings, in_unit, milliseconds

QUESTION = "What does reading the data from disk cost?"


def _data_format(entry: Entry) -> str:
    return entry.records[0].settings.data_format


def _num_workers(entry: Entry) -> int:
    return entry.records[0].settings.num_workers


def _seconds(record: Record) -> float:
    """Returns the seconds of training of all epochs."""
    return sum(statistics.present(record.train_seconds))


def wait_seconds(record: Record) -> float | None:
    """Returns the mean seconds over the ranks that a step waits for data: in training where it is read from disk, else in the breakdown."""
    if record.reading is None:
        return step.data_wait_seconds(record)
    return float(np.mean(record.reading.wait_seconds_by_rank)) / max(1, record.reading.num_steps)


def _wait_percent(entry: Entry) -> float | None:
    """Returns the wait as a share of the mean step of all epochs."""
    wait = entry.trimmed_mean(wait_seconds)
    steps = statistics.trimmed_mean(
        _seconds(record) / len(record.step_seconds) for record in entry.from_start or entry.ok if record.step_seconds
    )
    return 100 * wait / steps if wait is not None and steps else None


def _bytes_per_second(record: Record) -> float | None:
    """Returns the bytes of samples that all ranks read in a second of training."""
    seconds = _seconds(record)
    return sum(record.reading.sample_bytes_by_rank) / seconds if record.reading and seconds else None


COLUMNS: tuple[Column[Entry], ...] = (
    Column("format", _data_format),
    Column("workers", _num_workers),
    BACKEND,
    RANKS,
    Column("data wait per step (ms)", lambda entry: milliseconds(entry.trimmed_mean(wait_seconds)), ".3f"),
    Column("share of the step (%)", _wait_percent, ".1f"),
    Column("samples read (MB/s)", lambda entry: in_unit(entry.trimmed_mean(_bytes_per_second), MB), ".1f"),
)


def answer(comparisons: Sequence[Comparison]) -> Findings:
    """Answers for the comparisons whose data was read from disk, with those of the same training in memory."""
    sentences, tables = [], []
    for title in dict.fromkeys(comparison.training for comparison in comparisons if comparison.reading):
        entries = [entry for comparison in comparisons if comparison.training == title for entry in comparison.entries if entry.ok]
        entries.sort(key=lambda entry: (entry.backend, entry.num_ranks, _data_format(entry), _num_workers(entry)))
        tables += filled(title, COLUMNS, entries)
        sentences += _equality(title, entries)
    return Findings(sentences, tables)


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
