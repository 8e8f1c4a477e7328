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


def answer(compared):
    """(sentences, tables) of the comparisons."""
    sentences, tables = [], []
    for one in compared:
        agreements = _agreements(one)
        if agreements:
            sentences.append(_sentence(one, agreements))
        tables += filled(one.name, COLUMNS, [_row(group) for group in _groups(agreements)])
    return sentences, tables


def _agreements(compared):
    found = []
    for size in sorted({entry.num_ranks for entry in compared.entries}):
        present = [entry for entry in compared.entries if entry.num_ranks == size and entry.from_start]
        first = {entry.batch_ratio: entry for entry in reversed(present)}
        found += [_agreement(entry, first[entry.batch_ratio]) for entry in present]
    return found


def _agreement(entry, reference):
    others = {record.seed: record for record in reversed(reference.from_start)} if entry is not reference else {}
    record = next((record for record in entry.from_start if record.seed in others), entry.from_start[0])
    other = others.get(record.seed)
    initial, *later = record.parameter_digests or [None]
    return Agreement(
        entry.num_ranks, entry.backend, entry.exact, record.seed, initial, reference.backend if other else None,
        loss_difference(record.losses, other.losses, NUM_EQUAL_STEPS) if other else None,
        loss_difference(record.losses, other.losses) if other else None,
        later[-1] if later else None, len(record.train_seconds), record.accuracy, _in_sync(entry),
    )  # fmt: skip


def loss_difference(losses, others, num_steps=None):
    """The largest relative difference of two lists of losses, of the first steps or of all that both have; None without any."""
    pairs = [(loss, other) for loss, other in zip(losses[:num_steps], others[:num_steps], strict=False) if loss is not None and other]
    return max((abs(loss - other) / abs(other) for loss, other in pairs), default=None)


def _in_sync(entry):
    known = [record.in_sync for record in entry.runs]
    return "no" if False in known else "yes" if True in known else None


def _groups(agreements):
    """The agreements in lists, those of one size, one seed and one result together."""
    groups = {}
    for one in agreements:
        result = (one.initial, one.final, one.num_epochs, one.accuracy, one.in_sync) if one.final else one.backend
        groups.setdefault((one.num_ranks, one.seed, result), []).append(one)
    return groups.values()


def _row(group):
    """One row for backends whose final parameters are identical; its differences are the largest of theirs."""
    one = group[0]
    first_steps, all_steps = (
        max((value for member in group if (value := getattr(member, name)) is not None), default=None)
        for name in ("first_steps", "all_steps")
    )
    return (
        one.num_ranks, ", ".join(member.backend for member in group), one.initial and one.initial[:8],
        next((member.reference for member in group if member.reference), None), first_steps, all_steps,
        one.final and one.final[:8], one.num_epochs, one.accuracy, one.in_sync,
    )  # fmt: skip


def _sentence(compared, agreements):
    initial = {}
    for one in agreements:
        initial.setdefault(one.seed, set()).add(one.initial)
    same_start = all(len(digests) == 1 for digests in initial.values())
    sentences = [f"{compared.name}: {'all' if same_start else 'NOT all'} backends start from identical parameters."]
    if known := [one.first_steps for one in agreements if one.exact and one.first_steps is not None]:
        tolerance = TOLERANCES.get(compared.precision, TOLERANCE)
        agree = max(known) <= tolerance
        what = f"agree to {max(known):.0e}" if agree else f"differ by up to {max(known):.0e}, more than rounding explains ({tolerance:.0e})"
        sentences.append(f"Losses of the first {NUM_EQUAL_STEPS} steps {what}.")
    if equal := [f"{listed(names)} at {ranks_of(size)}" for size, names in _identical_at_end(agreements) if len(names) > 1]:
        sentences.append(f"Bitwise identical final parameters: {'; '.join(equal)}.")
    return " ".join(sentences)


def _identical_at_end(agreements):
    """[(number of ranks, backends with one digest of the final parameters)]."""
    by_digest = {}
    for one in agreements:
        if one.final:
            by_digest.setdefault((one.num_ranks, one.final), []).append(one.backend)
    return [(ranks, names) for (ranks, _), names in by_digest.items()]
