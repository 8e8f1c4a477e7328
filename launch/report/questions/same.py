"""Whether every backend trains the same model: initial parameters, samples, losses of each step, final parameters."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from common.record import comparison as record_comparison
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

    @property
    def final_digests(self) -> dict[int, set[str]]:
        """The digests of the final parameters by seed, of the runs of which an epoch has ended."""
        digests: dict[int, set[str]] = {}
        for record in self.entry.from_start:
            if final := _final(record):
                digests.setdefault(record.seed, set()).add(final)
        return digests

    def loss_difference(self, num_steps: int | None = None) -> float | None:
        """Returns the largest relative difference of the losses of all pairs, of the first steps or of all."""
        return max(present(loss_difference(record.losses, first.losses, num_steps) for record, first in self.pairs), default=None)

    def shared_seeds(self, agreement: "Agreement") -> set[int]:
        """Returns the seeds with which the runs of both have final parameters."""
        return self.final_digests.keys() & agreement.final_digests.keys()

    def is_identical_to(self, agreement: "Agreement") -> bool:
        """Returns whether another backend of this size ended with the same parameters with every seed that both have, if there is one."""
        seeds = self.shared_seeds(agreement)
        is_one_size = self.entry.num_ranks == agreement.entry.num_ranks and self.in_sync == agreement.in_sync
        return is_one_size and bool(seeds) and all(self.final_digests[seed] == agreement.final_digests[seed] for seed in seeds)


# The backends of one size that end with the same parameters: one row.
Group = list[Agreement]


def answer(comparison: Comparison) -> Findings:
    """Answers for a comparison."""
    agreements = _agreements(comparison)
    groups = _groups(agreements)
    sentences = [_sentence(comparison, agreements, groups)] if agreements else []
    return Findings(sentences, filled(comparison.name, [_row(comparison, group) for group in groups]))


def _agreements(comparison: Comparison) -> list[Agreement]:
    agreements = []
    for size in comparison.sizes:
        trained = [entry for entry in comparison.of_size(size) if entry.from_start]
        first = {entry.batch_ratio: entry for entry in reversed(trained)}
        agreements += [Agreement(entry, first[entry.batch_ratio]) for entry in trained]
    return agreements


def _groups(agreements: Iterable[Agreement]) -> list[Group]:
    """Returns the agreements in groups of those that are identical."""
    groups: list[Group] = []
    for agreement in agreements:
        group = next((group for group in groups if all(map(agreement.is_identical_to, group))), None)
        if group is None:
            groups.append([agreement])
        else:
            group.append(agreement)
    return groups


def _row(comparison: Comparison, group: Group) -> Cells:
    entry, shown = group[0].entry, group[0].shown

    def largest_difference(num_steps: int | None) -> float | None:
        return max(present(agreement.loss_difference(num_steps) for agreement in group), default=None)

    return entry.cells | {
        "backend": ", ".join(agreement.entry.backend for agreement in group),
        "seeds": len({record.seed for record in entry.from_start}),
        "initial parameters": _beginning(_initial(shown)),
        "reference": next((agreement.first.backend for agreement in group if agreement.pairs), None),
        f"loss difference, first {NUM_EQUAL_STEPS} steps": largest_difference(NUM_EQUAL_STEPS),
        "loss difference, all steps": largest_difference(None),
        "final parameters": _beginning(_final(shown)),
        "epochs": mean(len(record.train_seconds) for record in entry.from_start),
        comparison.metric: mean(record.accuracy for record in entry.from_start),
        "ranks in sync": group[0].in_sync,
    }


def _initial(record: Record) -> str | None:
    """Returns the digest of the initial parameters."""
    return next(iter(record.parameter_digests), None)


def _final(record: Record) -> str | None:
    """Returns the digest of the final parameters; None where no epoch has ended."""
    return next(reversed(record.parameter_digests[1:]), None)


def _beginning(digest: str | None) -> str | None:
    return digest and digest[:8]


def loss_difference(losses: Sequence[float | None], reference_losses: Sequence[float | None], num_steps: int | None = None) -> float | None:
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


def _sentence(comparison: Comparison, agreements: Sequence[Agreement], groups: Iterable[Group]) -> str:
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
    identical = "; ".join(_identical(group) for group in groups if len(group) > 1)
    return " ".join([*sentences, *_on_samples(records), *([f"Bitwise identical final parameters: {identical}."] if identical else [])])


def _on_samples(records: Iterable[Record]) -> list[str]:
    """Returns a sentence on whether runs of one seed and global batch train the same samples; none where nothing tells."""
    pairs = list(record_comparison.sample_pairs(records))
    if unequal := [str(pair) for pair in pairs if pair.difference]:
        return [f"NOT the same samples: {'; '.join(unequal[:NUM_NAMED])}."]
    return ["Runs of one seed and global batch train the same samples in the same order."] if pairs else []


def _identical(group: Group) -> str:
    """Describes the backends of a group, with the number of their seeds."""
    first, *further = group
    num_seeds = max(len(first.shared_seeds(agreement)) for agreement in further)
    seeds = "1 seed" if num_seeds == 1 else f"{num_seeds} seeds"
    return f"{listed([agreement.entry.backend for agreement in group])} at {ranks_of(first.entry.num_ranks)} ({seeds})"
