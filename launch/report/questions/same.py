"""Whether every backend trains the same model: initial parameters, losses of each step, final parameters. Pure."""

from typing import NamedTuple

from launch.report.tables import ACCURACY, RANKS, Column, filled
from launch.report.words import listed, ranks_of

QUESTION = "Does every backend train the same thing?"
# In float32, equal training agrees this well in its first steps; later steps amplify rounding (tests/frameworks/test_agreement.py).
TOLERANCE = 1e-6
# Where products are rounded (tests/frameworks/test_precision.py).
TOLERANCES = {"bf16": 2e-3, "tf32": 2e-3}
NUM_EQUAL_STEPS = 2
COLUMNS = (
    RANKS, Column("backends"), Column("initial parameters"), Column("reference"),
    Column(f"loss difference, first {NUM_EQUAL_STEPS} steps", ".1e"), Column("loss difference, all steps", ".1e"),
    Column("final parameters"), Column("epochs"), ACCURACY, Column("ranks in sync"),
)  # fmt: skip


class Agreement(NamedTuple):
    """One backend at one size against the first backend of that size and global batch, from runs of the same seed.

    Loss differences are relative; they and `reference` are None where no run has the same seed. `initial` and `final` are digests.
    """

    num_ranks: int
    backend: str
    exact: bool
    seed: int
    initial: str | None
    reference: str | None
    first_steps: float | None
    all_steps: float | None
    final: str | None
    num_epochs: int
    accuracy: float | None
    in_sync: str | None


def answer(comparisons):
    """(sentences, tables) of the comparisons."""
    sentences, tables = [], []
    for comparison in comparisons:
        agreements = _agreements(comparison)
        if agreements:
            sentences.append(_sentence(comparison, agreements))
        tables += filled(comparison.name, COLUMNS, [_row(group) for group in _groups(agreements)])
    return sentences, tables


def _agreements(comparison):
    agreements = []
    for size in sorted({entry.num_ranks for entry in comparison.entries}):
        present = [entry for entry in comparison.entries if entry.num_ranks == size and entry.from_start]
        first = {entry.batch_ratio: entry for entry in reversed(present)}
        agreements += [_agreement(entry, first[entry.batch_ratio]) for entry in present]
    return agreements


def _agreement(entry, reference):
    reference_records = {record.seed: record for record in reversed(reference.from_start)} if entry is not reference else {}
    record = next((record for record in entry.from_start if record.seed in reference_records), entry.from_start[0])
    reference_record = reference_records.get(record.seed)
    initial, *later = record.parameter_digests or [None]
    return Agreement(
        entry.num_ranks, entry.backend, entry.exact, record.seed, initial, reference.backend if reference_record else None,
        loss_difference(record.losses, reference_record.losses, NUM_EQUAL_STEPS) if reference_record else None,
        loss_difference(record.losses, reference_record.losses) if reference_record else None,
        later[-1] if later else None, len(record.train_seconds), record.accuracy, _in_sync(entry),
    )  # fmt: skip


def loss_difference(losses, reference_losses, num_steps=None):
    """The largest relative difference of two lists of losses, of the first steps or of all that both have; None without any."""
    pairs = zip(losses[:num_steps], reference_losses[:num_steps], strict=False)
    differences = (abs(loss - reference) / abs(reference) for loss, reference in pairs if loss is not None and reference)
    return max(differences, default=None)


def _in_sync(entry):
    in_sync = [record.in_sync for record in entry.records]
    return "no" if False in in_sync else "yes" if True in in_sync else None


def _groups(agreements):
    """The agreements in lists, those of one size, one seed and one result together."""
    groups = {}
    for agreement in agreements:
        result = (agreement.initial, agreement.final, agreement.num_epochs, agreement.accuracy, agreement.in_sync)
        key = agreement.num_ranks, agreement.seed, result if agreement.final else agreement.backend
        groups.setdefault(key, []).append(agreement)
    return groups.values()


def _row(group):
    """One row for backends whose final parameters are identical; its differences are the largest of theirs."""
    first = group[0]
    first_steps, all_steps = (
        max((value for member in group if (value := getattr(member, name)) is not None), default=None)
        for name in ("first_steps", "all_steps")
    )
    return (
        first.num_ranks, ", ".join(member.backend for member in group), first.initial and first.initial[:8],
        next((member.reference for member in group if member.reference), None), first_steps, all_steps,
        first.final and first.final[:8], first.num_epochs, first.accuracy, first.in_sync,
    )  # fmt: skip


def _sentence(comparison, agreements):
    initial = {}
    for agreement in agreements:
        initial.setdefault(agreement.seed, set()).add(agreement.initial)
    same_start = all(len(digests) == 1 for digests in initial.values())
    sentences = [f"{comparison.name}: {'all' if same_start else 'NOT all'} backends start from identical parameters."]
    if differences := [agreement.first_steps for agreement in agreements if agreement.exact and agreement.first_steps is not None]:
        tolerance = TOLERANCES.get(comparison.precision, TOLERANCE)
        largest = max(differences)
        more = f"differ by up to {largest:.0e}, more than rounding explains ({tolerance:.0e})"
        what = f"agree to {largest:.0e}" if largest <= tolerance else more
        sentences.append(f"Losses of the first {NUM_EQUAL_STEPS} steps {what}.")
    if equal := [f"{listed(names)} at {ranks_of(size)}" for size, names in _identical_at_end(agreements) if len(names) > 1]:
        sentences.append(f"Bitwise identical final parameters: {'; '.join(equal)}.")
    return " ".join(sentences)


def _identical_at_end(agreements):
    """[(number of ranks, backends with one digest of the final parameters)]."""
    by_digest = {}
    for agreement in agreements:
        if agreement.final:
            by_digest.setdefault((agreement.num_ranks, agreement.final), []).append(agreement.backend)
    return [(ranks, names) for (ranks, _), names in by_digest.items()]
