"""Ratios of backends on a machine, judged against those of a committed set: which agree, which do not, and by which factor."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from launch.report import factors, machine_effects, machine_variance, measures
from launch.report.entries import Entry
from launch.report.factors import FACTORS, Cell
from launch.report.statistics import Ratio

HERE, COMMITTED = "here", "committed"


class Judged(NamedTuple):
    """The ratio of a backend's seconds per epoch to those of the committed set's fastest, here and in that set.

    `quotient` is the former over the latter. `parts` are the factors of the quotient by framework, library and transport, and `remainder`
    is what they leave.
    """

    entry: Entry
    fastest: Entry
    here: Ratio
    committed: Ratio
    quotient: Ratio
    parts: dict[str, float]

    @property
    def num_ranks(self) -> int:
        return self.entry.num_ranks

    @property
    def remainder(self) -> float:
        """The quotient over the product of its parts."""
        return self.quotient.value / math.prod(self.parts.values())

    @property
    def largest_part(self) -> str:
        """The factor that moves the ratio most."""
        return max(self.parts, key=lambda factor: abs(math.log(self.parts[factor])))


def judged(here: Sequence[Entry], committed: Sequence[Entry]) -> list[Judged]:
    """Returns the ratios that both sides have, from comparable entries of one size, those of the committed set fastest first."""
    cells_here, cells_committed = factors.entries_by_cell(here), factors.entries_by_cell(committed)
    shared = [cell for cell in cells_committed if cell in cells_here]
    judgements = []
    for cell in shared[1:]:
        ratios = [
            measures.epoch_ratio(cells[cell], cells[shared[0]], candidates)
            for cells, candidates in ((cells_here, here), (cells_committed, committed))
        ]
        if (ratio_here := ratios[0]) and (ratio_committed := ratios[1]):
            parts = _parts({HERE: here, COMMITTED: committed}, shared, cell)
            divided = quotient(ratio_here, ratio_committed)
            judgements.append(Judged(cells_here[cell], cells_here[shared[0]], ratio_here, ratio_committed, divided, parts))
    return judgements


def quotient(above: Ratio, below: Ratio) -> Ratio:
    """Returns the quotient of two independent ratios, with the interval that follows from theirs.

    On logarithms the distance of a bound from the estimate is the root of the sum of squares of theirs (Zou and Donner, Construction of
    confidence intervals about effect measures, Statistics in Medicine 27, 2008).
    """
    value = above.value / below.value
    num_above, num_below = min(above.num_above, above.num_below), min(below.num_above, below.num_below)
    if above.low is None or above.high is None or below.low is None or below.high is None:
        return Ratio(value, None, None, num_above, num_below, False)
    down = math.hypot(math.log(above.value / above.low), math.log(below.high / below.value))
    up = math.hypot(math.log(above.high / above.value), math.log(below.value / below.low))
    return Ratio(value, value * math.exp(-down), value * math.exp(up), num_above, num_below, False)


def _parts(entries_on: Mapping[str, Sequence[Entry]], shared: Sequence[Cell], cell: Cell) -> dict[str, float]:
    """Returns by what each factor multiplies the ratio of a cell to the first of those shared, here over the committed set."""
    change_of = {(effect.factor, effect.ratio): _change(effect.values) for effect in machine_effects.effects(entries_on)}
    logarithms: dict[str, float] = dict.fromkeys(FACTORS, 0.0)
    for term in machine_effects.main_terms(shared):
        step = float(term.column[shared.index(cell)] - term.column[0])
        logarithms[term.factor] += step * change_of.get((term.factor, term.ratio), 0.0)
    return {factor: float(np.exp(logarithm)) for factor, logarithm in logarithms.items()}


def _change(values: machine_variance.Values) -> float:
    means = machine_variance.means(values)
    return means[HERE] - means[COMMITTED]
