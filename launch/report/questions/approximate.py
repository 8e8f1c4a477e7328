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


def answer(compared):
    """(sentences, tables) on the approximate backends, each against the fastest exact one of its size; empty where there are none.

    Asynchronous ones have a sentence of their own.
    """
    sentences, tables = [], []
    for one in compared:
        rows = []
        for size in sorted({entry.num_ranks for entry in one.entries}):
            candidates = one.of_size(size)
            exact = [entry for entry in candidates if entry.exact and entries.epoch_seconds(entry)]
            for entry in candidates:
                alike = [other for other in exact if other.batch_ratio == entry.batch_ratio]
                reference = min(alike or exact, key=entries.epoch_seconds, default=None)
                if reference and not entry.exact:
                    rows.append(_row(entry, reference, len(candidates)))
        sentences += [_sentence(one.name, row) for row in rows]
        sentences += [_on_staleness(one.name, entry) for entry in one.entries if any(record.staleness for record in entry.ok)]
        tables += filled(one.name, COLUMNS, rows)
    return sentences, tables


def _row(entry, reference, num_compared):
    pairs = _pairs(entry, reference)
    ratio = entries.epoch_ratio(entry, reference, num_compared)
    # With another global batch the losses of a step are of other samples.
    alike = pairs if entry.batch_ratio == reference.batch_ratio else []
    differences = [same.loss_difference(record.losses, other.losses, NUM_STEPS) for record, other in alike]
    return (
        entry.num_ranks, entry.backend, reference.backend, ratio and ratio.value, interval(ratio),
        max((one for one in differences if one is not None), default=None),
        *_means(_last_shared_accuracies(record, other) for record, other in pairs),
        *_means((epochs.to_target(record), epochs.to_target(other)) for record, other in pairs),
    )  # fmt: skip


def _pairs(entry, reference):
    """The runs of two entries that have the same matrix and repeat, and so the same seed."""
    others = {entries.key_of(record): record for record in reference.from_start}
    return [(record, others[entries.key_of(record)]) for record in entry.from_start if entries.key_of(record) in others]


def _last_shared_accuracies(record, other):
    """The accuracies of two runs after the last epoch that both have trained."""
    shared = [pair for pair in zip(record.accuracies, other.accuracies, strict=False) if None not in pair]
    return shared[-1] if shared else (None, None)


def _means(pairs):
    """The means of the pairs that are known on both sides; (None, None) without any."""
    known = [pair for pair in pairs if None not in pair]
    return tuple(sum(values) / len(known) for values in zip(*known, strict=True)) if known else (None, None)


def _sentence(name, row):
    size, backend, other, ratio, _, difference, accuracy, other_accuracy, *_ = row
    parts = [f"{name}, {ranks_of(size)}: {backend} is approximate"]
    if difference is not None:
        parts.append(f"its losses differ by up to {difference:.0e} in the first {NUM_STEPS} steps")
    if ratio is not None:
        parts.append(f"an epoch takes {ratio:.2f} times {other}'s seconds")
    if accuracy is not None:
        parts.append(f"after as many epochs its accuracy is {accuracy:.4f}, {other}'s {other_accuracy:.4f}")
    return "; ".join(parts) + "."


def _on_staleness(name, entry):
    counts = [item for record in entry.ok for of_epoch in record.staleness or () for item in of_epoch.items()]
    mean = sum(int(value) * number for value, number in counts) / sum(number for _, number in counts)
    sentence = f"{name}, {ranks_of(entry.num_ranks)}: {entry.backend} is asynchronous; an update has a mean staleness of {mean:.2f} updates"
    num_left_out = sum(bool(record.left_out) for record in entry.ok)
    return f"{sentence}; in {num_left_out} of its {len(entry.ok)} runs a worker was left out." if num_left_out else f"{sentence}."
