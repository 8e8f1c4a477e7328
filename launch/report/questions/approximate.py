"""What approximate backends gain in time and pay in accuracy, against the exact ones of the same size. Pure."""

from launch.report import entries, epochs
from launch.report.questions import same
from launch.report.tables import BACKEND, INTERVAL, RANKS, Column, filled
from launch.report.words import interval, ranks_of

QUESTION = "What do approximate backends gain, and what do they cost?"
NUM_STEPS = 20
COLUMNS = (
    RANKS, BACKEND, Column("against"), Column("seconds per epoch, ratio", ".2f"), INTERVAL,
    Column(f"loss difference, first {NUM_STEPS} steps", ".1e"), Column("accuracy after as many epochs", ".4f"),
    Column("accuracy of the other", ".4f"), Column("epochs to the target", ".1f"), Column("epochs of the other", ".1f"),
)  # fmt: skip


def answer(comparison):
    """(sentences, tables) on the approximate backends, each against the fastest exact one of its size; empty where there are none.

    Asynchronous ones have a sentence of their own.
    """
    rows = []
    for entry in sorted(comparison.entries, key=lambda entry: entry.num_ranks):
        candidates = comparison.of_size(entry.num_ranks)
        exact = [candidate for candidate in candidates if candidate.exact and entries.epoch_seconds(candidate)]
        alike = [candidate for candidate in exact if candidate.batch_ratio == entry.batch_ratio]
        reference = min(alike or exact, key=entries.epoch_seconds, default=None)
        if reference and not entry.exact:
            rows.append(_row(entry, reference, candidates))
    sentences = [_sentence(comparison.name, row) for row in rows]
    sentences += [_on_staleness(comparison.name, entry) for entry in comparison.entries if any(record.staleness for record in entry.ok)]
    return sentences, filled(comparison.name, COLUMNS, rows)


def _row(entry, reference, candidates):
    pairs = _pairs(entry, reference)
    ratio = entries.epoch_ratio(entry, reference, candidates)
    # With another global batch the losses of a step are of other samples.
    alike = pairs if entry.batch_ratio == reference.batch_ratio else []
    differences = [same.loss_difference(record.losses, reference_record.losses, NUM_STEPS) for record, reference_record in alike]
    return (
        entry.num_ranks, entry.backend, reference.backend, ratio and ratio.value, interval(ratio),
        max((difference for difference in differences if difference is not None), default=None),
        *_means(_last_shared_accuracies(record, reference_record) for record, reference_record in pairs),
        *_means((epochs.to_target(record), epochs.to_target(reference_record)) for record, reference_record in pairs),
    )  # fmt: skip


def _pairs(entry, reference):
    """The runs of two entries that have the same matrix and repeat, and so the same seed."""
    reference_records = {entries.key_of(record): record for record in reference.from_start}
    return [(record, reference_records[key]) for record in entry.from_start if (key := entries.key_of(record)) in reference_records]


def _last_shared_accuracies(record, reference_record):
    """The accuracies of two runs after the last epoch that both have trained."""
    shared = [pair for pair in zip(record.accuracies, reference_record.accuracies, strict=False) if None not in pair]
    return shared[-1] if shared else (None, None)


def _means(pairs):
    """The means of the pairs that are known on both sides; (None, None) without any."""
    complete = [pair for pair in pairs if None not in pair]
    return tuple(sum(values) / len(complete) for values in zip(*complete, strict=True)) if complete else (None, None)


def _sentence(name, row):
    size, backend, reference, ratio, _, difference, accuracy, reference_accuracy, *_ = row
    parts = [f"{name}, {ranks_of(size)}: {backend} is approximate"]
    if difference is not None:
        parts.append(f"its losses differ by up to {difference:.0e} in the first {NUM_STEPS} steps")
    if ratio is not None:
        parts.append(f"an epoch takes {ratio:.2f} times {reference}'s seconds")
    if accuracy is not None:
        parts.append(f"after as many epochs its accuracy is {accuracy:.4f}, {reference}'s {reference_accuracy:.4f}")
    return "; ".join(parts) + "."


def _on_staleness(name, entry):
    counts = [item for record in entry.ok for of_epoch in record.staleness or () for item in of_epoch.items()]
    mean = sum(int(value) * number for value, number in counts) / sum(number for _, number in counts)
    sentence = f"{name}, {ranks_of(entry.num_ranks)}: {entry.backend} is asynchronous; an update has a mean staleness of {mean:.2f} updates"
    num_left_out = sum(bool(record.left_out) for record in entry.ok)
    return f"{sentence}; in {num_left_out} of its {len(entry.ok)} runs a worker was left out." if num_left_out else f"{sentence}."
