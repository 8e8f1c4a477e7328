"""Whether every backend trains the same: initial parameters, samples and losses; and what approximate ones gain and cost."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from common.record import comparison as record_comparison
from common.record.definition import Record
from common.terminal import filled
from common.words import listed, ranks_of
from launch.report.entries import Comparison, Entry, epoch_ratio, key_of
from launch.report.findings import Cells, Findings
from launch.report.ratio_text import interval
from launch.report.statistics import mean, present

QUESTION = "Does every backend train the same thing?"
# In float32, equal training agrees this well in its first steps; later steps amplify rounding. On zen3-default TensorFlow's losses of the
# CNN are 1.2e-6 from PyTorch's.
TOLERANCE = 1e-5
# Where products are rounded (tests/frameworks/test_precision.py).
TOLERANCES = {"bf16": 2e-3, "tf32": 2e-3}
# In bfloat16 without AVX-512: TensorFlow's kernels round partial sums too.
TOLERANCE_OF_PARTIAL_SUMS = 1e-2
NUM_EQUAL_STEPS = 2
# A sentence names at most so many runs.
NUM_NAMED = 3


class Agreement(NamedTuple):
    """The runs of one backend at one size, and those of the first backend of this size and global batch."""

    entry: Entry
    first: Entry

    @property
    def pairs(self) -> list[tuple[Record, Record]]:
        """All pairs of a run and one of the first backend with its seed; none for the first backend itself."""
        runs, first_runs = self.entry.from_start, self.first.from_start if self.entry is not self.first else []
        return [(record, first) for record in runs for first in first_runs if first.seed == record.seed]

    def loss_difference(self, num_steps: int | None = None) -> float | None:
        """Returns the largest relative difference of the losses of all pairs, of the first steps or of all."""
        return max(present(_loss_difference(record.losses, first.losses, num_steps) for record, first in self.pairs), default=None)


def answer(comparison: Comparison) -> Findings:
    """Answers for a comparison: for its runs from the start on, and for approximate backends beside the fastest exact one of their size."""
    agreements = _agreements(comparison)
    sentences, rows = [_sentence(comparison, agreements)] if agreements else [], []
    for entry in comparison.entries:
        if not entry.exact and (exact := _fastest_exact(comparison, entry)):
            sentence, row = _against(comparison, entry, exact)
            sentences.append(sentence)
            rows.append(row)
    tables = [*filled(comparison.name, map(_row, agreements)), *filled(f"Approximate backends: {comparison.name}", rows)]
    return Findings(sentences, tables)


def _agreements(comparison: Comparison) -> list[Agreement]:
    agreements = []
    for size in comparison.sizes:
        trained = [entry for entry in comparison.of_size(size) if entry.from_start]
        first = {entry.batch_ratio: entry for entry in reversed(trained)}
        agreements += [Agreement(entry, first[entry.batch_ratio]) for entry in trained]
    return agreements


def _row(agreement: Agreement) -> Cells:
    entry = agreement.entry
    in_sync = {record.in_sync for record in entry.records}
    return entry.cells | {
        "reference": agreement.first.backend if agreement.pairs else None,
        f"loss difference, first {NUM_EQUAL_STEPS} steps": agreement.loss_difference(NUM_EQUAL_STEPS),
        "loss difference, all steps": agreement.loss_difference(),
        "ranks in sync": "no" if False in in_sync else "yes" if True in in_sync else None,
    }


def _loss_difference(losses: Sequence[float | None], reference_losses: Sequence[float | None], num_steps: int | None) -> float | None:
    """Returns the largest relative difference of two lists of losses, of the first steps or of all that both have; None without any."""
    pairs = zip(losses[:num_steps], reference_losses[:num_steps], strict=False)
    differences = (abs(loss - reference) / abs(reference) for loss, reference in pairs if loss is not None and reference)
    return max(differences, default=None)


def tolerance_of(precision: str, instruction_sets: Collection[str] | None, device: str | None = "cpu") -> float:
    """Returns how far apart the losses of equal training may be in its first steps, on a processor with these instruction sets or a GPU."""
    has_avx512 = instruction_sets is None or any(name.startswith("avx512") for name in instruction_sets)
    if precision == "bf16" and device != "cuda" and not has_avx512:
        return TOLERANCE_OF_PARTIAL_SUMS
    return TOLERANCES.get(precision, TOLERANCE)


def _sentence(comparison: Comparison, agreements: Sequence[Agreement]) -> str:
    entries = [agreement.entry for agreement in agreements]
    records = [record for entry in entries for record in entry.from_start]
    initial: dict[int, set[str | None]] = {}
    for record in records:
        initial.setdefault(record.seed, set()).add(next(iter(record.parameter_digests), None))
    same_start = all(len(digests) == 1 for digests in initial.values())
    sentences = [f"{comparison.name}: {'all' if same_start else 'NOT all'} backends start from identical parameters."]
    if differences := present(agreement.loss_difference(NUM_EQUAL_STEPS) for agreement in agreements if agreement.entry.exact):
        environments = [record.environment for record in records]
        tolerance = max(
            tolerance_of(comparison.precision, environment.instruction_sets, environment.device) for environment in environments
        )
        largest = max(differences)
        difference = f"differ by up to {largest:.0e}, more than rounding explains ({tolerance:.0e})"
        result = f"agree to {largest:.0e}" if largest <= tolerance else difference
        sentences.append(f"Losses of the first {NUM_EQUAL_STEPS} steps {result}.")
    if unequal := [entry for entry in entries if any(record.buffers_in_sync is False for record in entry.records)]:
        names = listed([f"{entry.backend} at {ranks_of(entry.num_ranks)}" for entry in unequal])
        sentences.append(f"Buffers, such as statistics of batch norm, differ between the ranks of {names}: each evaluates with its own.")
    return " ".join([*sentences, *_on_samples(records)])


def _on_samples(records: Iterable[Record]) -> list[str]:
    """Returns a sentence on whether runs of one seed and global batch train the same samples; none where nothing tells."""
    pairs = list(record_comparison.sample_pairs(records))
    if unequal := [str(pair) for pair in pairs if pair.difference]:
        return [f"NOT the same samples: {'; '.join(unequal[:NUM_NAMED])}."]
    return ["Runs of one seed and global batch train the same samples in the same order."] if pairs else []


def _fastest_exact(comparison: Comparison, approximate: Entry) -> Entry | None:
    """Returns the exact entry of a size with the lowest seconds per epoch, of those with the same global batch if there is one."""
    timed = [entry for entry in comparison.of_size(approximate.num_ranks) if entry.exact and entry.epoch_seconds]
    return min(timed, key=lambda entry: (entry.batch_ratio != approximate.batch_ratio, entry.epoch_seconds or 0.0), default=None)


def _against(comparison: Comparison, entry: Entry, exact: Entry) -> tuple[str, Cells]:
    """Returns the sentence and the row on an approximate backend beside an exact one."""
    ratio = epoch_ratio(entry, exact, comparison.of_size(entry.num_ranks))
    accuracy, exact_accuracy = _shared_accuracies(entry, exact)
    texts = [f"{comparison.name}, {ranks_of(entry.num_ranks)}: {entry.backend} is approximate"]
    if ratio is not None:
        texts.append(f"an epoch takes {ratio.value:.2f} times {exact.backend}'s seconds")
    if accuracy is not None:
        texts.append(f"after as many epochs its {comparison.metric} is {accuracy:.4f}, {exact.backend}'s {exact_accuracy:.4f}")
    return f"{'; '.join(texts)}.", entry.cells | {
        "against": exact.backend,
        "ratio of seconds per epoch": ratio and ratio.value,
        "95 % interval": interval(ratio),
        f"{comparison.metric} after as many epochs": accuracy,
        f"{comparison.metric} of the other": exact_accuracy,
        "mean staleness of an update": _mean_staleness(entry),
    }


def _shared_accuracies(entry: Entry, exact: Entry) -> tuple[float | None, float | None]:
    """Returns the mean accuracies of both over their pairs of runs, each after the last epoch that both runs have trained."""
    record_of = {key_of(record): record for record in exact.from_start}
    pairs = [(record, record_of[key]) for record in entry.from_start if (key := key_of(record)) in record_of]
    shared = [
        [both for both in zip(record.accuracies, exact_record.accuracies, strict=False) if None not in both]
        for record, exact_record in pairs
    ]
    last = [of_pair[-1] for of_pair in shared if of_pair]
    return mean(accuracy for accuracy, _ in last), mean(accuracy for _, accuracy in last)


def _mean_staleness(entry: Entry) -> float | None:
    """Returns by how many updates those of an asynchronous backend were late; None for others."""
    counts = [count for record in entry.ok for of_epoch in record.staleness or () for count in of_epoch.items()]
    num_updates = sum(number for _, number in counts)
    return sum(int(staleness) * number for staleness, number in counts) / num_updates if num_updates else None
