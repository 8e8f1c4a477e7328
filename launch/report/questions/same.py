"""Whether every backend trains the same model: initial parameters, losses of each step, final parameters."""

import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from common.record import comparison
from common.record.definition import Record
from common.terminal import filled
from common.words import listed, ranks_of
from launch.report.entries import Comparison, Entry
from launch.report.findings import Cells, Findings
from launch.report.statistics import mean, present

QUESTION = "Does every backend train the same thing?"
# In float32, equal training agrees this well in its first steps; later steps amplify rounding (tests/frameworks/test_agreement.py).
TOLERANCE = 1e-6
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
