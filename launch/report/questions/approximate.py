"""What approximate backends gain and cost beside the fastest exact one of their size: time, losses, accuracy, staleness."""

from collections.abc import Iterable

from common.record.definition import Record
from common.terminal import filled
from common.words import ranks_of
from launch.report import measures
from launch.report.entries import Comparison, Entry, key_of
from launch.report.findings import Cells, Findings
from launch.report.questions.same import loss_difference
from launch.report.ratio_text import interval
from launch.report.statistics import mean, present
from launch.report.table import epochs_to_target

QUESTION = "What do approximate backends gain, and what do they cost?"
# Those in which approximate backends are compared.
NUM_STEPS = 20

Pair = tuple[float | None, float | None]


def answer(comparison: Comparison) -> Findings:
    """Compares each approximate backend with the fastest exact one of its size. Asynchronous backends have a sentence of their own."""
    sentences, rows = [], []
    for entry in sorted(comparison.entries, key=lambda entry: entry.num_ranks):
        candidates = comparison.of_size(entry.num_ranks)
        exact = [(seconds, candidate) for candidate in candidates if candidate.exact and (seconds := measures.epoch_seconds(candidate))]
        same_batch = [(seconds, candidate) for seconds, candidate in exact if candidate.batch_ratio == entry.batch_ratio]
        if exact and not entry.exact:
            _, reference = min(same_batch or exact, key=lambda timed: timed[0])
            sentence, row = _against(comparison, entry, reference)
            sentences.append(sentence)
            rows.append(row)
    sentences += [_on_staleness(comparison.name, entry) for entry in comparison.entries if any(record.staleness for record in entry.ok)]
    return Findings(sentences, filled(comparison.name, rows))


def _against(comparison: Comparison, entry: Entry, reference: Entry) -> tuple[str, Cells]:
    """Returns the sentence and the row on an approximate backend beside an exact one; means are those over the pairs of runs."""
    pairs = _pairs_of_runs(entry, reference)
    ratio = measures.epoch_ratio(entry, reference, comparison.of_size(entry.num_ranks))
    # With another global batch the losses of a step are of other samples.
    same_batch = pairs if entry.batch_ratio == reference.batch_ratio else []
    differences = [loss_difference(record.losses, reference_record.losses, NUM_STEPS) for record, reference_record in same_batch]
    difference = max(present(differences), default=None)
    accuracy, reference_accuracy = _means(_last_shared_accuracies(*pair) for pair in pairs)
    num_epochs, num_reference_epochs = _means((epochs_to_target(record), epochs_to_target(second)) for record, second in pairs)
    texts = [f"{comparison.name}, {ranks_of(entry.num_ranks)}: {entry.backend} is approximate"]
    if difference is not None:
        texts.append(f"its losses differ by up to {difference:.0e} in the first {NUM_STEPS} steps")
    if ratio is not None:
        texts.append(f"an epoch takes {ratio.value:.2f} times {reference.backend}'s seconds")
    if accuracy is not None:
        texts.append(f"after as many epochs its {comparison.metric} is {accuracy:.4f}, {reference.backend}'s {reference_accuracy:.4f}")
    return "; ".join(texts) + ".", entry.cells | {
        "against": reference.backend,
        "ratio of seconds per epoch": ratio and ratio.value,
        "95 % interval": interval(ratio),
        f"loss difference, first {NUM_STEPS} steps": difference,
        f"{comparison.metric} after as many epochs": accuracy,
        f"{comparison.metric} of the other": reference_accuracy,
        "epochs to the target": num_epochs,
        "epochs of the other": num_reference_epochs,
    }


def _pairs_of_runs(entry: Entry, reference: Entry) -> list[tuple[Record, Record]]:
    """Returns the pairs of runs of two entries that have the same matrix and repeat, and so the same seed."""
    reference_records = {key_of(record): record for record in reference.from_start}
    return [(record, reference_records[key]) for record in entry.from_start if (key := key_of(record)) in reference_records]


def _last_shared_accuracies(record: Record, reference_record: Record) -> Pair:
    """Returns the accuracies of two runs after the last epoch that both have trained."""
    shared = [pair for pair in zip(record.accuracies, reference_record.accuracies, strict=False) if None not in pair]
    return shared[-1] if shared else (None, None)


def _means(pairs: Iterable[Pair]) -> Pair:
    """Returns the means of both sides of the pairs that are known on both."""
    complete = [pair for pair in pairs if None not in pair]
    return mean(first for first, _ in complete), mean(second for _, second in complete)


def _on_staleness(name: str, entry: Entry) -> str:
    counts = [item for record in entry.ok for counts_of_epoch in record.staleness or () for item in counts_of_epoch.items()]
    sentence = f"{name}, {ranks_of(entry.num_ranks)}: {entry.backend} is asynchronous"
    if num_updates := sum(number for _, number in counts):
        staleness = sum(int(value) * number for value, number in counts) / num_updates
        sentence = f"{sentence}; an update has a mean staleness of {staleness:.2f} updates"
    num_left_out = sum(bool(record.left_out) for record in entry.ok)
    return f"{sentence}; in {num_left_out} of its {len(entry.ok)} runs a worker was left out." if num_left_out else f"{sentence}."
