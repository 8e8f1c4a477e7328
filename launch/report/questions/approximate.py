"""What approximate backends gain in time and pay in accuracy, against the exact ones of the same size."""

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from common.record.definition import Record
from common.terminal import Column, filled
from common.words import ranks_of
from launch.report import entries, epochs, measures
from launch.report.entries import Comparison, Entry
from launch.report.questions import same
from launch.report.statistics import Ratio, mean, present
from launch.report.tables import BACKEND, RANKS, Findings, interval_column, of_metric, through
from launch.report.words import interval

QUESTION = "What do approximate backends gain, and what do they cost?"
NUM_STEPS = 20
Pair = tuple[float | None, float | None]


class Row(NamedTuple):
    """An entry of an approximate backend beside the exact one of its size; means are those over the pairs of runs."""

    entry: Entry
    reference: Entry
    ratio: Ratio | None
    loss_difference: float | None
    accuracies: Pair
    epochs: Pair


COLUMNS: tuple[Column[Row], ...] = (
    *through("entry", RANKS, BACKEND),
    Column("against", attrgetter("reference.backend")),
    Column("seconds per epoch, ratio", lambda row: row.ratio and row.ratio.value, ".2f"),
    interval_column(lambda row: interval(row.ratio)),
    Column(f"loss difference, first {NUM_STEPS} steps", attrgetter("loss_difference"), ".1e"),
    Column("accuracy after as many epochs", lambda row: row.accuracies[0], ".4f"),
    Column("accuracy of the other", lambda row: row.accuracies[1], ".4f"),
    Column("epochs to the target", lambda row: row.epochs[0], ".1f"),
    Column("epochs of the other", lambda row: row.epochs[1], ".1f"),
)


def answer(comparison: Comparison) -> Findings:
    """Compares each approximate backend with the fastest exact one of its size. Asynchronous backends have a sentence of their own."""
    rows = []
    for entry in sorted(comparison.entries, key=lambda entry: entry.num_ranks):
        candidates = comparison.of_size(entry.num_ranks)
        exact = [(seconds, candidate) for candidate in candidates if candidate.exact and (seconds := measures.epoch_seconds(candidate))]
        alike = [(seconds, candidate) for seconds, candidate in exact if candidate.batch_ratio == entry.batch_ratio]
        if exact and not entry.exact:
            _, reference = min(alike or exact, key=lambda timed: timed[0])
            rows.append(_row(entry, reference, candidates))
    sentences = [_sentence(comparison.name, row) for row in rows]
    sentences += [_on_staleness(comparison.name, entry) for entry in comparison.entries if any(record.staleness for record in entry.ok)]
    return Findings(sentences, filled(comparison.name, of_metric(COLUMNS, comparison.metric), rows))


def _row(entry: Entry, reference: Entry, candidates: list[Entry]) -> Row:
    pairs = _pairs(entry, reference)
    ratio = measures.epoch_ratio(entry, reference, candidates)
    # With another global batch the losses of a step are of other samples.
    alike = pairs if entry.batch_ratio == reference.batch_ratio else []
    differences = [same.loss_difference(record.losses, reference_record.losses, NUM_STEPS) for record, reference_record in alike]
    return Row(
        entry,
        reference,
        ratio,
        max(present(differences), default=None),
        _means(_last_shared_accuracies(record, reference_record) for record, reference_record in pairs),
        _means((epochs.to_target(record), epochs.to_target(reference_record)) for record, reference_record in pairs),
    )


def _pairs(entry: Entry, reference: Entry) -> list[tuple[Record, Record]]:
    """Returns the pairs of runs of two entries that have the same matrix and repeat, and so the same seed."""
    reference_records = {entries.key_of(record): record for record in reference.from_start}
    return [(record, reference_records[key]) for record in entry.from_start if (key := entries.key_of(record)) in reference_records]


def _last_shared_accuracies(record: Record, reference_record: Record) -> Pair:
    """Returns the accuracies of two runs after the last epoch that both have trained."""
    shared = [pair for pair in zip(record.accuracies, reference_record.accuracies, strict=False) if None not in pair]
    return shared[-1] if shared else (None, None)


def _means(pairs: Iterable[Pair]) -> Pair:
    """Returns the means of both sides of the pairs that are known on both."""
    complete = [pair for pair in pairs if None not in pair]
    return mean(first for first, _ in complete), mean(second for _, second in complete)


def _sentence(name: str, row: Row) -> str:
    reference = row.reference.backend
    parts = [f"{name}, {ranks_of(row.entry.num_ranks)}: {row.entry.backend} is approximate"]
    if row.loss_difference is not None:
        parts.append(f"its losses differ by up to {row.loss_difference:.0e} in the first {NUM_STEPS} steps")
    if row.ratio is not None:
        parts.append(f"an epoch takes {row.ratio.value:.2f} times {reference}'s seconds")
    accuracy, reference_accuracy = row.accuracies
    if accuracy is not None:
        name_of_metric = row.entry.records[0].metric
        parts.append(f"after as many epochs its {name_of_metric} is {accuracy:.4f}, {reference}'s {reference_accuracy:.4f}")
    return "; ".join(parts) + "."


def _on_staleness(name: str, entry: Entry) -> str:
    counts = [item for record in entry.ok for counts_of_epoch in record.staleness or () for item in counts_of_epoch.items()]
    sentence = f"{name}, {ranks_of(entry.num_ranks)}: {entry.backend} is asynchronous"
    if num_updates := sum(number for _, number in counts):
        mean = sum(int(value) * number for value, number in counts) / num_updates
        sentence = f"{sentence}; an update has a mean staleness of {mean:.2f} updates"
    num_left_out = sum(bool(record.left_out) for record in entry.ok)
    return f"{sentence}; in {num_left_out} of its {len(entry.ok)} runs a worker was left out." if num_left_out else f"{sentence}."
