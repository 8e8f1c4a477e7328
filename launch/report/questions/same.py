"""Whether every backend trains the same model: initial parameters, losses of each step, final parameters."""

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from common.record.definition import Record
from launch.report.entries import Comparison, Entry
from launch.report.statistics import present
from launch.report.tables import RANKS, Column, Findings, accuracy_column, filled
from launch.report.words import listed, ranks_of

QUESTION = "Does every backend train the same thing?"
# In float32, equal training agrees this well in its first steps; later steps amplify rounding (tests/frameworks/test_agreement.py).
TOLERANCE = 1e-6
# Where products are rounded (tests/frameworks/test_precision.py).
TOLERANCES = {"bf16": 2e-3, "tf32": 2e-3}
# In bfloat16 without AVX-512: TensorFlow's kernels round partial sums too.
TOLERANCE_OF_PARTIAL_SUMS = 1e-2
NUM_EQUAL_STEPS = 2


class Agreement(NamedTuple):
    """A run of one backend at one size, and that of the first backend of this size and global batch; None without one of its seed."""

    entry: Entry
    record: Record
    reference: Record | None

    @property
    def initial(self) -> str | None:
        """The digest of the initial parameters."""
        return next(iter(self.record.parameter_digests), None)

    @property
    def final(self) -> str | None:
        """The digest of the final parameters; None where no epoch has ended."""
        return next(reversed(self.record.parameter_digests[1:]), None)

    @property
    def in_sync(self) -> str | None:
        """Whether the ranks of all runs had equal parameters; None where no run has compared them."""
        in_sync = [record.in_sync for record in self.entry.records]
        return "no" if False in in_sync else "yes" if True in in_sync else None

    @property
    def result(self) -> tuple[int, float | None, str | None]:
        """The epochs, accuracy and synchronization, in which the backends of a row are equal."""
        return len(self.record.train_seconds), self.record.accuracy, self.in_sync

    def loss_difference(self, num_steps: int | None = None) -> float | None:
        """Returns the largest relative difference of the losses, of the first steps or of all."""
        return loss_difference(self.record.losses, self.reference.losses, num_steps) if self.reference else None


# The backends whose final parameters are identical: one row.
Group = list[Agreement]


def _loss_difference(num_steps: int | None, group: Group) -> float | None:
    """Returns the largest difference of a group."""
    return max(present(agreement.loss_difference(num_steps) for agreement in group), default=None)


def _beginning(digest: str | None) -> str | None:
    return digest and digest[:8]


COLUMNS: tuple[Column[Group], ...] = (
    Column(RANKS.name, lambda group: group[0].entry.num_ranks, brief=RANKS.brief),
    Column("backends", lambda group: ", ".join(agreement.entry.backend for agreement in group)),
    Column("initial parameters", lambda group: _beginning(group[0].initial)),
    Column("reference", lambda group: next((agreement.reference.backend for agreement in group if agreement.reference), None)),
    Column(f"loss difference, first {NUM_EQUAL_STEPS} steps", partial(_loss_difference, NUM_EQUAL_STEPS), ".1e"),
    Column("loss difference, all steps", partial(_loss_difference, None), ".1e"),
    Column("final parameters", lambda group: _beginning(group[0].final)),
    Column("epochs", lambda group: len(group[0].record.train_seconds)),
    accuracy_column(lambda group: group[0].record.accuracy),
    Column("ranks in sync", lambda group: group[0].in_sync),
)


def answer(comparison: Comparison) -> Findings:
    """Answers for a comparison."""
    agreements = _agreements(comparison)
    sentences = [_sentence(comparison, agreements)] if agreements else []
    return Findings(sentences, filled(comparison.name, COLUMNS, _groups(agreements)))


def _agreements(comparison: Comparison) -> list[Agreement]:
    agreements = []
    for size in comparison.sizes:
        trained = [entry for entry in comparison.of_size(size) if entry.from_start]
        first = {entry.batch_ratio: entry for entry in reversed(trained)}
        agreements += [_agreement(entry, first[entry.batch_ratio]) for entry in trained]
    return agreements


def _agreement(entry: Entry, first: Entry) -> Agreement:
    references = {record.seed: record for record in reversed(first.from_start)} if entry is not first else {}
    record = next((record for record in entry.from_start if record.seed in references), entry.from_start[0])
    return Agreement(entry, record, references.get(record.seed))


def loss_difference(losses: Sequence[float | None], reference_losses: Sequence[float | None], num_steps: int | None = None) -> float | None:
    """Returns the largest relative difference of two lists of losses, of the first steps or of all that both have; None without any."""
    pairs = zip(losses[:num_steps], reference_losses[:num_steps], strict=False)
    differences = (abs(loss - reference) / abs(reference) for loss, reference in pairs if loss is not None and reference)
    return max(differences, default=None)


def _groups(agreements: Iterable[Agreement]) -> list[Group]:
    """Returns the agreements in groups, those of one size, one seed and one result together."""
    groups: dict[tuple, Group] = {}
    for agreement in agreements:
        record = agreement.record
        end = (agreement.initial, agreement.final, agreement.result) if agreement.final else record.backend
        groups.setdefault((record.num_ranks, record.seed, end), []).append(agreement)
    return list(groups.values())


def tolerance_of(precision: str, instruction_sets: Collection[str] | None, device: str | None = "cpu") -> float:
    """Returns how far apart the losses of equal training may be in its first steps, on a processor with these instruction sets or a GPU."""
    has_avx512 = instruction_sets is None or any(name.startswith("avx512") for name in instruction_sets)
    if precision == "bf16" and device != "cuda" and not has_avx512:
        return TOLERANCE_OF_PARTIAL_SUMS
    return TOLERANCES.get(precision, TOLERANCE)


def _sentence(comparison: Comparison, agreements: Sequence[Agreement]) -> str:
    initial: dict[int, set[str | None]] = {}
    at_end: dict[tuple[int, str], list[str]] = {}
    for agreement in agreements:
        initial.setdefault(agreement.record.seed, set()).add(agreement.initial)
        if agreement.final:
            at_end.setdefault((agreement.entry.num_ranks, agreement.final), []).append(agreement.entry.backend)
    same_start = all(len(digests) == 1 for digests in initial.values())
    sentences = [f"{comparison.name}: {'all' if same_start else 'NOT all'} backends start from identical parameters."]
    if differences := present(agreement.loss_difference(NUM_EQUAL_STEPS) for agreement in agreements if agreement.entry.exact):
        environments = [agreement.record.environment for agreement in agreements]
        tolerance = max(
            tolerance_of(comparison.precision, environment.instruction_sets, environment.device) for environment in environments
        )
        largest = max(differences)
        difference = f"differ by up to {largest:.0e}, more than rounding explains ({tolerance:.0e})"
        result = f"agree to {largest:.0e}" if largest <= tolerance else difference
        sentences.append(f"Losses of the first {NUM_EQUAL_STEPS} steps {result}.")
    if equal := [f"{listed(backends)} at {ranks_of(size)}" for (size, _), backends in at_end.items() if len(backends) > 1]:
        sentences.append(f"Bitwise identical final parameters: {'; '.join(equal)}.")
    return " ".join(sentences)
