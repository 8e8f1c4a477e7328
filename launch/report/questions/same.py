"""Whether every backend trains the same model, and what approximate ones gain and cost: parameters, losses of each step, accuracy."""

import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from common.record import comparison
from common.record.definition import Record
from common.terminal import filled
from common.words import listed, ranks_of
from launch.report import entries, measures
from launch.report.entries import Comparison, Entry
from launch.report.findings import Cells, Findings
from launch.report.ratio_text import interval
from launch.report.statistics import mean, present
from launch.report.table import epochs_to_target

QUESTION = "Does every backend train the same thing?"
APPROXIMATE = "What do approximate backends gain, and what do they cost?"
# In float32, equal training agrees this well in its first steps; later steps amplify rounding (tests/frameworks/test_agreement.py).
TOLERANCE = 1e-6
# Where products are rounded (tests/frameworks/test_precision.py).
TOLERANCES = {"bf16": 2e-3, "tf32": 2e-3}
# In bfloat16 without AVX-512: TensorFlow's kernels round partial sums too.
TOLERANCE_OF_PARTIAL_SUMS = 1e-2
NUM_EQUAL_STEPS = 2
# Those in which approximate backends are compared.
NUM_APPROXIMATE_STEPS = 20
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

    @property
    def shown(self) -> Record:
        """The run whose digests are shown: the first whose seed the first backend has too, if there is one."""
        return next((record for record, _ in self.pairs), self.entry.from_start[0])

    @property
    def in_sync(self) -> str | None:
        """Whether the ranks of all runs had equal parameters; None where no run has compared them."""
        in_sync = [record.in_sync for record in self.entry.records]
        return "no" if False in in_sync else "yes" if True in in_sync else None

    def loss_difference(self, num_steps: int | None = None) -> float | None:
        """Returns the largest relative difference of the losses of all pairs, of the first steps or of all."""
        return max(present(loss_difference(record.losses, first.losses, num_steps) for record, first in self.pairs), default=None)


Pair = tuple[float | None, float | None]
# The backends of one size whose runs end equally with every seed: one row.
Group = list[Agreement]
# What the runs of each seed end with.
Ends = Mapping[int, set[Any]]


def _initial(record: Record) -> str | None:
    """Returns the digest of the initial parameters."""
    return next(iter(record.parameter_digests), None)


def _final(record: Record) -> str | None:
    """Returns the digest of the final parameters; None where no epoch has ended."""
    return next(reversed(record.parameter_digests[1:]), None)


def _by_seed(entry: Entry, value_of: Callable[[Record], Hashable]) -> dict[int, set[Any]]:
    values: dict[int, set[Any]] = {}
    for record in entry.from_start:
        if _final(record):
            values.setdefault(record.seed, set()).add(value_of(record))
    return values


def final_digests(entry: Entry) -> dict[int, set[str]]:
    """Returns the digests of the final parameters by seed, of the runs of which an epoch has ended."""
    return _by_seed(entry, _final)


def _results(entry: Entry) -> dict[int, set[Any]]:
    """Returns by seed all in which the backends of a row are equal."""
    return _by_seed(entry, lambda record: (_initial(record), _final(record), len(record.train_seconds), record.accuracy))


def _loss_difference(num_steps: int | None, group: Group) -> float | None:
    """Returns the largest difference of a group."""
    return max(present(agreement.loss_difference(num_steps) for agreement in group), default=None)


def _beginning(digest: str | None) -> str | None:
    return digest and digest[:8]


def answer(comparison: Comparison) -> Findings:
    """Answers for a comparison."""
    agreements = _agreements(comparison)
    sentences = [_sentence(comparison, agreements)] if agreements else []
    return Findings(sentences, filled(comparison.name, [_row(comparison, group) for group in _groups(agreements, _results)]))


def _row(comparison: Comparison, group: Group) -> Cells:
    entry, shown = group[0].entry, group[0].shown
    return entry.cells | {
        "backend": ", ".join(agreement.entry.backend for agreement in group),
        "seeds": len({record.seed for record in entry.from_start}),
        "initial parameters": _beginning(_initial(shown)),
        "reference": next((agreement.first.backend for agreement in group if agreement.pairs), None),
        f"loss difference, first {NUM_EQUAL_STEPS} steps": _loss_difference(NUM_EQUAL_STEPS, group),
        "loss difference, all steps": _loss_difference(None, group),
        "final parameters": _beginning(_final(shown)),
        "epochs": mean(len(record.train_seconds) for record in entry.from_start),
        comparison.metric: mean(record.accuracy for record in entry.from_start),
        "ranks in sync": group[0].in_sync,
    }


def _agreements(comparison: Comparison) -> list[Agreement]:
    agreements = []
    for size in comparison.sizes:
        trained = [entry for entry in comparison.of_size(size) if entry.from_start]
        first = {entry.batch_ratio: entry for entry in reversed(trained)}
        agreements += [Agreement(entry, first[entry.batch_ratio]) for entry in trained]
    return agreements


def loss_difference(losses: Sequence[float | None], reference_losses: Sequence[float | None], num_steps: int | None = None) -> float | None:
    """Returns the largest relative difference of two lists of losses, of the first steps or of all that both have; None without any."""
    pairs = zip(losses[:num_steps], reference_losses[:num_steps], strict=False)
    differences = (abs(loss - reference) / abs(reference) for loss, reference in pairs if loss is not None and reference)
    return max(differences, default=None)


def _groups(agreements: Iterable[Agreement], ends_of: Callable[[Entry], Ends]) -> list[Group]:
    """Returns the agreements in groups: those of one size that are equal in `ends_of` with every seed that both have."""
    groups: list[Group] = []
    for agreement in agreements:
        equal_groups = (group for group in groups if all(_are_equal(member, agreement, ends_of) for member in group))
        group = next(equal_groups, None)
        if group is None:
            groups.append([agreement])
        else:
            group.append(agreement)
    return groups


def _are_equal(agreement: Agreement, second: Agreement, ends_of: Callable[[Entry], Ends]) -> bool:
    ends, second_ends = ends_of(agreement.entry), ends_of(second.entry)
    seeds = ends.keys() & second_ends.keys()
    is_one_size = agreement.entry.num_ranks == second.entry.num_ranks and agreement.in_sync == second.in_sync
    return is_one_size and bool(seeds) and all(ends[seed] == second_ends[seed] for seed in seeds)


def tolerance_of(precision: str, instruction_sets: Collection[str] | None, device: str | None = "cpu") -> float:
    """Returns how far apart the losses of equal training may be in its first steps, on a processor with these instruction sets or a GPU."""
    has_avx512 = instruction_sets is None or any(name.startswith("avx512") for name in instruction_sets)
    if precision == "bf16" and device != "cuda" and not has_avx512:
        return TOLERANCE_OF_PARTIAL_SUMS
    return TOLERANCES.get(precision, TOLERANCE)


def _sentence(comparison: Comparison, agreements: Sequence[Agreement]) -> str:
    records = [record for agreement in agreements for record in agreement.entry.from_start]
    initial: dict[int, set[str | None]] = {}
    for record in records:
        initial.setdefault(record.seed, set()).add(_initial(record))
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
    if unequal := [
        agreement.entry for agreement in agreements if any(record.buffers_in_sync is False for record in agreement.entry.records)
    ]:
        names = listed([f"{entry.backend} at {ranks_of(entry.num_ranks)}" for entry in unequal])
        sentences.append(f"Buffers, such as statistics of batch norm, differ between the ranks of {names}: each evaluates with its own.")
    return " ".join([*sentences, *_on_samples(records), *_on_final_parameters(agreements)])


def _on_samples(records: Iterable[Record]) -> list[str]:
    """Returns a sentence on whether runs of one seed and global batch train the same samples; none where nothing tells."""
    pairs = list(comparison.sample_pairs(records))
    if unequal := [str(pair) for pair in pairs if pair.difference]:
        return [f"NOT the same samples: {'; '.join(unequal[:NUM_NAMED])}."]
    return ["Runs of one seed and global batch train the same samples in the same order."] if pairs else []


def _on_final_parameters(agreements: Sequence[Agreement]) -> list[str]:
    """Returns the sentences on backends whose final parameters are bitwise identical, with every seed and with some."""
    groups = _groups(agreements, final_digests)
    identical = [
        f"{listed([agreement.entry.backend for agreement in group])} at {ranks_of(num_ranks)} ({_seeds_of(num_seeds)})"
        for group in groups
        if len(group) > 1
        for num_ranks, num_seeds in [(group[0].entry.num_ranks, max(_num_identical(group[0], member)[1] for member in group[1:]))]
    ]
    partly = [
        f"{first.entry.backend} and {second.entry.backend} at {ranks_of(first.entry.num_ranks)} ({num_identical} of {_seeds_of(num_seeds)})"
        for (first, *_), (second, *_) in itertools.combinations(groups, 2)
        for num_identical, num_seeds in [_num_identical(first, second)]
        if 0 < num_identical < num_seeds
    ]
    sentences = {"Bitwise identical final parameters": identical, "With some seeds only": partly}
    return [f"{beginning}: {'; '.join(parts)}." for beginning, parts in sentences.items() if parts]


def _num_identical(agreement: Agreement, second: Agreement) -> tuple[int, int]:
    """Returns with how many seeds the final parameters of two backends of one size are identical, and how many seeds both have."""
    if agreement.entry.num_ranks != second.entry.num_ranks:
        return 0, 0
    digests, second_digests = final_digests(agreement.entry), final_digests(second.entry)
    seeds = digests.keys() & second_digests.keys()
    return sum(digests[seed] == second_digests[seed] for seed in seeds), len(seeds)


def _seeds_of(number: int) -> str:
    return f"{number} seed" if number == 1 else f"{number} seeds"


def approximate(comparison: Comparison) -> Findings:
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
    differences = [
        loss_difference(record.losses, reference_record.losses, NUM_APPROXIMATE_STEPS) for record, reference_record in same_batch
    ]
    difference = max(present(differences), default=None)
    accuracy, reference_accuracy = _means(_last_shared_accuracies(*pair) for pair in pairs)
    num_epochs, num_reference_epochs = _means((epochs_to_target(record), epochs_to_target(second)) for record, second in pairs)
    texts = [f"{comparison.name}, {ranks_of(entry.num_ranks)}: {entry.backend} is approximate"]
    if difference is not None:
        texts.append(f"its losses differ by up to {difference:.0e} in the first {NUM_APPROXIMATE_STEPS} steps")
    if ratio is not None:
        texts.append(f"an epoch takes {ratio.value:.2f} times {reference.backend}'s seconds")
    if accuracy is not None:
        texts.append(f"after as many epochs its {comparison.metric} is {accuracy:.4f}, {reference.backend}'s {reference_accuracy:.4f}")
    return "; ".join(texts) + ".", entry.cells | {
        "against": reference.backend,
        "ratio of seconds per epoch": ratio and ratio.value,
        "95 % interval": interval(ratio),
        f"loss difference, first {NUM_APPROXIMATE_STEPS} steps": difference,
        f"{comparison.metric} after as many epochs": accuracy,
        f"{comparison.metric} of the other": reference_accuracy,
        "epochs to the target": num_epochs,
        "epochs of the other": num_reference_epochs,
    }


def _pairs_of_runs(entry: Entry, reference: Entry) -> list[tuple[Record, Record]]:
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


def _on_staleness(name: str, entry: Entry) -> str:
    counts = [item for record in entry.ok for counts_of_epoch in record.staleness or () for item in counts_of_epoch.items()]
    sentence = f"{name}, {ranks_of(entry.num_ranks)}: {entry.backend} is asynchronous"
    if num_updates := sum(number for _, number in counts):
        staleness = sum(int(value) * number for value, number in counts) / num_updates
        sentence = f"{sentence}; an update has a mean staleness of {staleness:.2f} updates"
    num_left_out = sum(bool(record.left_out) for record in entry.ok)
    return f"{sentence}; in {num_left_out} of its {len(entry.ok)} runs a worker was left out." if num_left_out else f"{sentence}."
