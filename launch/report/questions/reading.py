"""What reading the samples from disk costs, by format. Pure."""

import numpy as np

from launch.report import statistics
from launch.report.tables import BACKEND, MB, RANKS, Column, filled

QUESTION = "What does reading the data from disk cost?"
COLUMNS = (
    Column("format"), Column("workers"), Column("caches dropped"), BACKEND, RANKS, Column("data wait per step (ms)", ".3f"),
    Column("share of the step (%)", ".1f"), Column("samples per rank (MB/s)", ".1f"), Column("samples in all (MB/s)", ".1f"),
    Column("read over samples", ".2f"), Column("from the page cache (%)", ".0f"), Column("files opened per rank"),
    Column("conversion (s)", ".2f"), Column("on disk (MB)", ".1f"),
)  # fmt: skip


def answer(comparisons):
    """(sentences, tables) of the comparisons whose data was read from disk, with those of the same training in memory."""
    sentences, tables = [], []
    for title in dict.fromkeys(comparison.training for comparison in comparisons if comparison.reading):
        entries = [entry for comparison in comparisons if comparison.training == title for entry in comparison.entries if entry.ok]
        entries.sort(key=lambda entry: (entry.backend, entry.num_ranks, *map(str, _how(entry))))
        tables += filled(title, COLUMNS, [_row(entry) for entry in entries])
        orders = {_format(entry) for entry in entries if _typical(entry, lambda record: record.reading.sample_order == "files")}
        if orders:
            sentences.append(
                f"{title}: {', '.join(sorted(orders))} can be read in order only, so the samples have another order: compare the times, "
                "not the losses."
            )
        sentences += _equality(title, [entry for entry in entries if _format(entry) not in orders])
    return sentences, tables


def _equality(title, entries):
    """Whether runs that differ in nothing but how they read have the same losses."""
    losses, formats = {}, {}
    for record in (record for entry in entries for record in entry.from_start):
        key = record.workload_digest, record.backend, record.num_ranks, record.seed, len(record.losses)
        losses.setdefault(key, set()).add(tuple(record.losses))
        formats.setdefault(key, set()).add(record.settings.data_format)
    several = [key for key in losses if len(formats[key]) > 1]
    if several:
        names = ", ".join(sorted(set.union(*(formats[key] for key in several))))
        equal = all(len(losses[key]) == 1 for key in several)
        yield f"{title}: the losses with {names} are {'equal to the bit' if equal else 'not equal'}."


def _format(entry):
    return entry.records[0].settings.data_format


def _how(entry):
    settings = entry.records[0].settings
    return _format(entry), settings.num_workers, settings.drop_caches


def _typical(entry, value_of):
    """The typical value over an entry's runs with samples from disk; None without such."""
    return statistics.typical_or_none(value_of(record) for record in entry.ok if record.reading)


def _row(entry):
    wait = _typical(entry, lambda record: np.mean(record.reading.wait_seconds_by_rank) / max(1, record.reading.num_steps))
    step = statistics.typical([sum(record.train_seconds) / len(record.step_seconds) for record in entry.from_start or entry.ok])
    if wait is None:
        broken_down = [record.step_breakdown for record in entry.ok if record.step_breakdown]
        wait = statistics.typical_or_none(np.mean(breakdown.data_wait_seconds) for breakdown in broken_down)
    rate = _typical(entry, lambda record: np.mean(record.reading.sample_bytes_by_rank) / sum(record.train_seconds) / MB)
    num_opens = _typical(entry, lambda record: np.mean(record.reading.num_opens_by_rank))
    return (
        *_how(entry), entry.backend, entry.num_ranks, None if wait is None else 1000 * wait, None if wait is None else 100 * wait / step,
        rate, None if rate is None else rate * entry.num_ranks, _typical(entry, _read_over_samples),
        _typical(entry, _cached_percent), None if num_opens is None else round(num_opens),
        _typical(entry, lambda record: record.reading.convert_seconds), _typical(entry, lambda record: record.reading.stored_bytes / MB),
    )  # fmt: skip


def _read_over_samples(record):
    """Bytes that the processes have read over those of the samples; None where Linux does not tell."""
    read, samples = record.reading.read_bytes_by_rank, record.reading.sample_bytes_by_rank
    return None if None in read or not sum(samples) else sum(read) / sum(samples)


def _cached_percent(record):
    """The part of what was read that did not come from a disk; None where Linux does not tell."""
    read, from_disk = record.reading.read_bytes_by_rank, record.reading.disk_bytes_by_rank
    return None if None in read + from_disk or not sum(read) else 100 * max(0.0, 1 - sum(from_disk) / sum(read))
