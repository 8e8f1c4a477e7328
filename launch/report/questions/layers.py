"""A framework's part of a step taken apart: seconds by kind of layer, and what remains as runtime."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from common.backends import ALONE, declaration_of
from common.record.definition import Record
from common.record.parts import LayerSeconds
from launch.report import statistics
from launch.report.entries import Comparison, Entry
from launch.report.questions.step import compute_seconds
from launch.report.tables import Column, Findings, filled
from launch.report.words import listed

QUESTION = "In which layers do the frameworks differ?"
REMAINING, COMPUTE = "remaining: runtime (Python, dispatch, graph)", "compute of a step"
# How far the layers may be from the compute of a step before a sentence says so, as a share of it.
TOLERANCE = 0.1
# How many rows a sentence names.
NUM_NAMED = 3


class Times(NamedTuple):
    """Milliseconds of a step in a row. Those of REMAINING and COMPUTE are known in all only."""

    forward: float | None
    backward: float | None
    total: float


class Row(NamedTuple):
    """A kind of layer, or REMAINING or COMPUTE, with its Times by backend."""

    name: str
    times_of: dict[str, Times]

    def difference(self, backend: str, reference: str) -> float:
        return self.times_of[backend].total - self.times_of[reference].total


def answer(comparison: Comparison) -> Findings:
    """Answers for the backends without a library whose layers were measured."""
    rows = rows_of([entry for entry in comparison.entries if declaration_of(entry.backend).library == ALONE])
    if not rows:
        return Findings([], [])
    at = f"{comparison.name}, 1 rank"
    return Findings(sentences(at, rows), filled(f"{at}: a step by kind of layer, each computed alone", columns_of(rows), rows))


def rows_of(entries: Sequence[Entry]) -> list[Row]:
    """Returns a row for each kind of layer, REMAINING and COMPUTE; nothing where no layers were measured.

    Times are means over the runs, as in the step breakdown. REMAINING is what the kinds leave of COMPUTE, and is negative where they take
    longer.
    """
    measured = [entry for entry in entries if any(map(_layers_of, entry.ok)) and _milliseconds(entry, compute_seconds) > 0]
    kinds = dict.fromkeys(kind for entry in measured for record in entry.ok for kind in _layers_of(record))
    of_kinds = [Row(kind, {entry.backend: _times(entry, kind) for entry in measured}) for kind in kinds]
    compute = Row(COMPUTE, {entry.backend: _total(_milliseconds(entry, compute_seconds)) for entry in measured})
    in_kinds = {entry.backend: sum(row.times_of[entry.backend].total for row in of_kinds) for entry in measured}
    remaining = Row(REMAINING, {backend: _total(compute.times_of[backend].total - total) for backend, total in in_kinds.items()})
    return [*of_kinds, remaining, compute] if measured else []


def sentences(at: str, rows: Sequence[Row]) -> list[str]:
    """Returns a sentence on each slower backend, with the rows that differ most, and one on each whose layers do not add up to its step."""
    *parts, compute = rows
    fastest, *slower = sorted(compute.times_of, key=lambda backend: compute.times_of[backend].total)
    differing = [_differing(backend, fastest, parts, compute) for backend in slower]
    not_adding_up = [_not_adding_up(backend, parts[-1], compute) for backend in compute.times_of]
    return [f"{at}, {text}." for text in (*differing, *not_adding_up) if text]


def columns_of(rows: Sequence[Row]) -> list[Column[Row]]:
    """Returns the columns of the table: the Times of each backend, and the difference of each to the first."""
    backends = list(rows[0].times_of)
    reference, *compared = backends
    times = [Column(f"{backend} {part} (ms)", partial(_time, backend, part), ".3f") for backend in backends for part in Times._fields]
    differences = [Column(f"{backend} - {reference} (ms)", partial(_difference, backend, reference), "+.3f") for backend in compared]
    return [Column("layers", attrgetter("name")), *times, *differences]


def _differing(backend: str, fastest: str, parts: Sequence[Row], compute: Row) -> str:
    ratio = compute.times_of[backend].total / compute.times_of[fastest].total
    largest = sorted(parts, key=lambda row: -abs(row.difference(backend, fastest)))[:NUM_NAMED]
    named = listed([f"{row.name} {row.difference(backend, fastest):+.2f} ms" for row in largest])
    return (
        f"compute of a step: {backend} takes {ratio:.2f} times {fastest}'s, {compute.difference(backend, fastest):+.2f} ms, most in {named}"
    )


def _not_adding_up(backend: str, remaining: Row, compute: Row) -> str | None:
    share = remaining.times_of[backend].total / compute.times_of[backend].total
    if abs(share) <= TOLERANCE:
        return None
    reason = (
        f"{remaining.times_of[backend].total:.2f} ms are runtime, or in no row" if share > 0
        else "alone, operations are not fused and find less in the caches, so that their rows are too long"
    )  # fmt: skip
    return f"layers of {backend} add up to {100 * (1 - share):.0f} % of the compute of its step: {reason}"


def _layers_of(record: Record) -> dict[str, LayerSeconds]:
    return (record.step_breakdown and record.step_breakdown.layers) or {}


def _times(entry: Entry, kind: str) -> Times:
    forward, backward = (_milliseconds(entry, partial(_seconds, kind, part)) for part in ("forward_seconds", "backward_seconds"))
    return Times(forward, backward, forward + backward)


def _total(milliseconds: float) -> Times:
    return Times(None, None, milliseconds)


def _seconds(kind: str, part: str, record: Record) -> float | None:
    return getattr(_layers_of(record).get(kind), part, None)


def _milliseconds(entry: Entry, seconds_of: Callable[[Record], float | None]) -> float:
    """Returns the milliseconds of the runs of an entry whose layers were measured; 0 where they have none."""
    return 1000 * (statistics.mean(seconds_of(record) for record in entry.ok if _layers_of(record)) or 0.0)


def _time(backend: str, part: str, row: Row) -> float | None:
    return getattr(row.times_of[backend], part)


def _difference(backend: str, reference: str, row: Row) -> float:
    return row.difference(backend, reference)
