"""Whether every backend trains the same thing: first parameters, losses of each step, last parameters. Pure."""

from typing import NamedTuple

from launch.display import ranks_of
from launch.report.tables import ACCURACY, BACKEND, RANKS, Column, filled, listed

QUESTION = "Does every backend train the same thing?"
# Equal trainings agree so well in float32 in their first steps, before training amplifies rounding (see tests/test_agreement.py).
AGREEMENT = 1e-6
NUM_EQUAL_STEPS = 2
COLUMNS = (
    RANKS, BACKEND, Column("first parameters"), Column("compared with"), Column(f"loss of first {NUM_EQUAL_STEPS} steps, apart by", ".1e"),
    Column("of all steps", ".1e"), Column("last parameters"), Column("epochs"), ACCURACY, Column("ranks in sync"),
)  # fmt: skip


class Likeness(NamedTuple):
    """One backend at one size beside the first of that size, by runs of the same seed; differences are relative, None without such runs."""

    ranks: int
    backend: str
    seed: int
    first: str | None
    reference: str | None
    first_steps: float | None
    all_steps: float | None
    last: str | None
    epochs: int
    accuracy: float | None
    in_sync: str | None


def answer(compared):
    """(sentences, tables) of the comparisons."""
    sentences, tables = [], []
    for one in compared:
        likenesses = _likenesses(one)
        if likenesses:
            sentences.append(_sentence(one, likenesses))
        tables += filled(one.name, COLUMNS, [_row(like) for like in likenesses])
    return sentences, tables


def _likenesses(compared):
    found = []
    for size in sorted({entry.ranks for entry in compared.entries}):
        present = [entry for entry in compared.entries if entry.ranks == size and entry.whole]
        found += [_likeness(entry, present[0]) for entry in present]
    return found


def _likeness(entry, reference):
    others = {run["seed"]: run for run in reversed(reference.whole)} if entry is not reference else {}
    run = next((run for run in entry.whole if run["seed"] in others), entry.whole[0])
    other = others.get(run["seed"])
    first, *later = run["parameter_digests"] or [None]
    return Likeness(
        entry.ranks, entry.backend, run["seed"], first, reference.backend if other else None,
        apart(run["losses"], other["losses"], NUM_EQUAL_STEPS) if other else None,
        apart(run["losses"], other["losses"]) if other else None,
        later[-1] if later else None, len(run["train_seconds"]), run["accuracy"], _in_sync(entry),
    )  # fmt: skip


def apart(losses, others, num_steps=None):
    """The largest relative difference of two lists of losses over the first steps, or over all that both have; None without any."""
    pairs = [(loss, other) for loss, other in zip(losses[:num_steps], others[:num_steps], strict=False) if loss is not None and other]
    return max((abs(loss - other) / abs(other) for loss, other in pairs), default=None)


def _in_sync(entry):
    known = [run["in_sync"] for run in entry.runs]
    return "no" if False in known else "yes" if True in known else None


def _row(like):
    return (
        like.ranks, like.backend, like.first and like.first[:8], like.reference, like.first_steps, like.all_steps,
        like.last and like.last[:8], like.epochs, like.accuracy, like.in_sync,
    )  # fmt: skip


def _sentence(compared, likenesses):
    starts = {}
    for like in likenesses:
        starts.setdefault(like.seed, set()).add(like.first)
    same_start = all(len(digests) == 1 for digests in starts.values())
    known = [like.first_steps for like in likenesses if like.first_steps is not None]
    said = f"{compared.name}: {'all' if same_start else 'NOT all'} start from the same parameters"
    if known:
        agree = max(known) <= AGREEMENT
        said += f"; the losses of their first {NUM_EQUAL_STEPS} steps {'agree to' if agree else 'differ by up to'} {max(known):.0e}"
        said += "" if agree else f", more than the {AGREEMENT:.0e} that rounding explains"
    equal = [f"{listed(names)} at {ranks_of(size)}" for size, names in _equal_ends(likenesses) if len(names) > 1]
    return f"{said}; to the bit the same at the end: {'; '.join(equal)}." if equal else f"{said}."


def _equal_ends(likenesses):
    ends = {}
    for like in likenesses:
        if like.last:
            ends.setdefault((like.ranks, like.last), []).append(like.backend)
    return [(ranks, names) for (ranks, _), names in ends.items()]
