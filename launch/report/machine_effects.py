"""What framework, library and transport multiply seconds per epoch by on each of several machines, by least squares on logarithms."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from launch.report import factors, measures
from launch.report.entries import Entry, Key
from launch.report.factors import FACTORS, Cell
from launch.report.machine_variance import Values

# Whether one library pays more for a transport than another.
INTERACTION = "library and transport"


class Term(NamedTuple):
    """A term of the model: its factor, the two levels whose ratio it is, and its value for each cell."""

    factor: str
    ratio: str
    column: np.ndarray


class Effect(NamedTuple):
    """The logarithm of a ratio of seconds per epoch, of each repeat."""

    factor: str
    ratio: str
    values: Values


def effects(entries_on: Mapping[str, Sequence[Entry]]) -> list[Effect]:
    """Returns the effects that the cells which all machines have can show, from comparable entries of one size on each machine.

    The model of the logarithm of a run's seconds per epoch is the repeat, which all cells share, and a sum of a term for each level of a
    factor beside the most frequent one. Main effects are averages, from the model without interactions.
    """
    cells_on = {machine: factors.entries_by_cell(candidates) for machine, candidates in entries_on.items()}
    shared = [cell for cell in next(iter(cells_on.values()), {}) if all(cell in cells for cells in cells_on.values())]
    main = main_terms(shared)
    interactions = interaction_terms(main)
    weights = {**weights_of(main), **{term: row for term, row in weights_of([*main, *interactions]).items() if term[0] == INTERACTION}}
    seconds_on = {machine: _seconds([cells[cell] for cell in shared]) for machine, cells in cells_on.items()}
    return [
        Effect(factor, ratio, {machine: _by_session(seconds, row) for machine, seconds in seconds_on.items()})
        for (factor, ratio), row in weights.items()
        if all(seconds_on.values())
    ]


def main_terms(cells: Sequence[Cell]) -> list[Term]:
    """Returns a term for each level of a factor but the reference."""
    return [
        Term(factor, f"{level} to {reference}", np.array([cell[index] == level for cell in cells], float))
        for index, factor in enumerate(FACTORS)
        for reference, *levels in [_levels(cells, index)]
        for level in levels
    ]


def interaction_terms(main: Sequence[Term]) -> list[Term]:
    """Returns the products of the terms of library and transport."""
    libraries, transports = ([term for term in main if term.factor == factor] for factor in FACTORS[1:])
    return [
        Term(INTERACTION, f"{transport.ratio}, of {library.ratio}", library.column * transport.column)
        for library in libraries
        for transport in transports
    ]


def weights_of(terms: Sequence[Term]) -> dict[tuple[str, str], np.ndarray]:
    """Returns the weight of each cell in the least-squares estimate of each term that the cells can tell from all others."""
    if not terms:
        return {}
    design = np.column_stack([np.ones(len(terms[0].column)), *(term.column for term in terms)])
    rank, estimates = np.linalg.matrix_rank(design), np.linalg.pinv(design)
    return {
        (term.factor, term.ratio): estimates[index]
        for index, term in enumerate(terms, 1)
        if np.linalg.matrix_rank(np.delete(design, index, axis=1)) < rank
    }


def _levels(cells: Sequence[Cell], index: int) -> list[str]:
    """Returns the levels of a factor, the most frequent one first, and else by name."""
    counts = Counter(str(cell[index]) for cell in cells)
    return sorted(counts, key=lambda level: (-counts[level], level)) or [""]


def _seconds(cells: Sequence[Entry]) -> dict[Key, np.ndarray]:
    """Returns the logarithms of the seconds per epoch of all cells, of each repeat that all of them have."""
    by_cell = [measures.epoch_seconds_by_key(entry) for entry in cells]
    shared = [key for key in by_cell[0] if all(key in seconds for seconds in by_cell)] if by_cell else []
    return {key: np.log([seconds[key] for seconds in by_cell]) for key in shared}


def _by_session(seconds: Mapping[Key, np.ndarray], weights: np.ndarray) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for key, logarithms in seconds.items():
        values.setdefault(key.matrix, []).append(float(weights @ logarithms))
    return values
