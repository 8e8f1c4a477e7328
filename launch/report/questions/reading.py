"""What reading the samples from disk costs, by format."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

import numpy as np

from common.record.definition import Record
from common.record.parts import Reading
from launch.report import statistics
from launch.report.entries import Comparison, Entry
from launch.report.questions import step
from launch.report.tables import BACKEND, MB, RANKS, Column, Findings, filled, in_unit, milliseconds

QUESTION = "What does reading the data from disk cost?"


def _format(entry: Entry) -> str:
    return entry.records[0].settings.data_format


def _trimmed_mean(value_of: Callable[[Reading], float | None]) -> Callable[[Entry], float | None]:
    """Returns a function that gives the trimmed mean over an entry's runs with samples from disk; None without such."""
    return lambda entry: entry.trimmed_mean(lambda record: value_of(record.reading) if record.reading else None)


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
    """Returns the bytes of samples that a rank reads in a second of training, as a mean over the ranks."""
    seconds = _seconds(record)
    return float(np.mean(record.reading.sample_bytes_by_rank)) / seconds if record.reading and seconds else None


def _total_bytes_per_second(record: Record) -> float | None:
    """Returns the bytes of samples that all ranks read in a second of training."""
    by_rank = _bytes_per_second(record)
    return None if by_rank is None else by_rank * record.num_ranks


def _num_opens(entry: Entry) -> int | None:
    """Returns the mean number of files that a rank opened."""
    num_opens = _trimmed_mean(lambda reading: float(np.mean(reading.num_opens_by_rank)))(entry)
    return None if num_opens is None else round(num_opens)


def _read_over_samples(reading: Reading) -> float | None:
    """Returns the bytes that the processes have read over those of the samples; None where Linux does not tell."""
    read, num_bytes = statistics.complete(reading.read_bytes_by_rank), sum(reading.sample_bytes_by_rank)
    return sum(read) / num_bytes if read is not None and num_bytes else None


def _cached_percent(reading: Reading) -> float | None:
    """Returns the share of the bytes read that did not come from a disk; None where Linux does not tell."""
    read, from_disk = statistics.complete(reading.read_bytes_by_rank), statistics.complete(reading.disk_bytes_by_rank)
    return 100 * max(0.0, 1 - sum(from_disk) / sum(read)) if read and from_disk is not None and sum(read) else None


COLUMNS: tuple[Column[Entry], ...] = (
    Column("format", _format),
    Column("workers", lambda entry: entry.records[0].settings.num_workers),
    Column("caches dropped", lambda entry: entry.records[0].settings.drop_caches),
    BACKEND,
    RANKS,
    Column("data wait per step (ms)", lambda entry: milliseconds(entry.trimmed_mean(wait_seconds)), ".3f"),
    Column("share of the step (%)", _wait_percent, ".1f"),
    Column("samples per rank (MB/s)", lambda entry: in_unit(entry.trimmed_mean(_bytes_per_second), MB), ".1f"),
    Column("samples in all (MB/s)", lambda entry: in_unit(entry.trimmed_mean(_total_bytes_per_second), MB), ".1f"),
    Column("read over samples", _trimmed_mean(_read_over_samples), ".2f"),
    Column("from the page cache (%)", _trimmed_mean(_cached_percent), ".0f"),
    Column("files opened per rank", _num_opens),
    Column("conversion (s)", _trimmed_mean(attrgetter("convert_seconds")), ".2f"),
    Column("on disk (MB)", _trimmed_mean(lambda reading: reading.stored_bytes / MB), ".1f"),
)


def answer(comparisons: Sequence[Comparison]) -> Findings:
    """Answers for the comparisons whose data was read from disk, with those of the same training in memory."""
    sentences, tables = [], []
    for title in dict.fromkeys(comparison.training for comparison in comparisons if comparison.reading):
        entries = [entry for comparison in comparisons if comparison.training == title for entry in comparison.entries if entry.ok]
        entries.sort(key=_order)
        tables += filled(title, COLUMNS, entries)
        ordered = {
            _format(entry) for entry in entries if any(record.reading and record.reading.sample_order == "files" for record in entry.ok)
        }
        if ordered:
            sentences.append(
                f"{title}: {', '.join(sorted(ordered))} can be read in order only, so the samples have another order: compare the times, "
                "not the losses."
            )
        sentences += _equality(title, [entry for entry in entries if _format(entry) not in ordered])
    return Findings(sentences, tables)


def _order(entry: Entry) -> tuple[str, int, str, str, str]:
    """Returns what rows are sorted by: the backend, the size, and how the data was read."""
    settings = entry.records[0].settings
    return entry.backend, entry.num_ranks, settings.data_format, str(settings.num_workers), settings.drop_caches


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
