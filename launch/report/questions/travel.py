"""What framework, library and transport cost on each of several machines, and what they would cost on a machine not measured."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from launch.report import machine_effects, machine_variance
from launch.report.entries import Comparison, Entry
from launch.report.factors import FACTORS
from launch.report.machine_effects import Effect
from launch.report.machine_variance import MIN_MACHINES_CONFIDENT
from launch.report.questions import machines
from launch.report.tables import RANKS, Column, Findings, filled
from launch.report.words import listed, ranks_of

QUESTION = "What would a machine not measured show?"
TWO_MACHINES = (
    "Two machines cannot tell what a third would show: with one degree of freedom Student's interval reaches 12.7 standard errors, and a "
    "machine's share of the variance is as uncertain."
)


class Row(NamedTuple):
    """An effect at a size, with its mean on each machine as a logarithm."""

    num_ranks: int
    effect: Effect
    mean_on: dict[str, float]

    @property
    def components(self) -> machine_variance.Components | None:
        """The components of its variance; None without repeats."""
        return machine_variance.components(self.effect.values)

    @property
    def noise(self) -> float:
        """The variance that repeats and sessions give the mean of a machine."""
        return machine_variance.noise_variance(self.effect.values, self.components) if self.components else 0.0

    @property
    def spread(self) -> float:
        """The largest ratio between two machines."""
        return math.exp(max(self.mean_on.values()) - min(self.mean_on.values()))

    @property
    def num_predicted(self) -> int | None:
        """How many machines have a mean that the others predict; None with two machines."""
        return machine_variance.num_predicted(list(self.mean_on.values()), self.noise)


def answer(comparisons: Sequence[Comparison]) -> Findings:
    """Answers for the comparisons of several machines."""
    by_name: dict[str, list[Row]] = {}
    sentences = []
    for (name, size), rows in rows_by_size(comparisons).items():
        by_name.setdefault(name, []).extend(rows)
        sentences += _spreads(f"{name}, {ranks_of(size)}", rows)
    rows = [row for rows in by_name.values() for row in rows]
    tables = [table for name, rows_of_name in by_name.items() for table in filled(f"{name}: factors", _columns(rows_of_name), rows_of_name)]
    return Findings([*sentences, *_prediction_sentences(rows)], tables)


def rows_by_size(comparisons: Sequence[Comparison]) -> dict[tuple[str, int], list[Row]]:
    """Returns a row for each effect, by comparison and size."""
    return {at: _rows_of(candidates) for at, candidates in _candidates(comparisons).items()}


def _rows_of(entries_on: dict[str, list[Entry]]) -> list[Row]:
    """Returns a row for each effect, from the comparable entries of one size on each machine."""
    size = next((entry.num_ranks for candidates in entries_on.values() for entry in candidates), 0)
    return [Row(size, effect, machine_variance.means(effect.values)) for effect in machine_effects.effects(entries_on)]


def _candidates(comparisons: Sequence[Comparison]) -> dict[tuple[str, int], dict[str, list[Entry]]]:
    """Returns the comparable entries of each machine, by comparison and size, where two machines or more have several."""
    return {
        at: {machine: [place.entry for place in placed if not place.is_apart] for machine, placed in placed_on.items()}
        for at, placed_on in machines.standings_of(comparisons).items()
    }


def _spreads(at: str, rows: Sequence[Row]) -> list[str]:
    """Returns the sentence on the main effects that differ most and least between machines."""
    in_order = sorted((row for row in rows if row.effect.factor in FACTORS), key=attrgetter("spread"))
    if len(in_order) < 2:
        return []
    least, most = in_order[0], in_order[-1]
    return [
        f"{at}: between {listed(list(most.mean_on))} the ratio of {most.effect.ratio} ({most.effect.factor}) changes most, by a factor of "
        f"{most.spread:.2f}, and that of {least.effect.ratio} ({least.effect.factor}) least, by {least.spread:.2f}."
    ]


def _prediction_sentences(rows: Sequence[Row]) -> list[str]:
    sentences = [TWO_MACHINES] if any(len(row.mean_on) < MIN_MACHINES_CONFIDENT for row in rows) else []
    left_out = [(len(row.mean_on), num_predicted) for row in rows if (num_predicted := row.num_predicted) is not None]
    if left_out:
        num_values, num_predicted = map(sum, zip(*left_out, strict=True))
        sentences.append(
            f"Left out one at a time, a machine had the ratio that the others predict in {num_predicted} of {num_values} cases."
        )
    return sentences


def _columns(rows: Sequence[Row]) -> tuple[Column[Row], ...]:
    names = list(dict.fromkeys(machine for row in rows for machine in row.mean_on))
    return (
        RANKS,
        Column("factor", attrgetter("effect.factor")),
        Column("ratio of seconds per epoch", attrgetter("effect.ratio")),
        *(Column(name, partial(_ratio, name), ".2f") for name in names),
        Column("machines together", lambda row: math.exp(sum(row.mean_on.values()) / len(row.mean_on)), ".2f"),
        Column("machine's share of variance (%)", _share, ".0f"),
        Column("machine not measured, 95 %", _predicted),
        Column("predicted when left out", _left_out),
    )


def _ratio(machine: str, row: Row) -> float | None:
    return math.exp(row.mean_on[machine]) if machine in row.mean_on else None


def _share(row: Row) -> float | None:
    share = row.components and row.components.machine_share
    return None if share is None else 100 * share


def _predicted(row: Row) -> str | None:
    """Returns the prediction interval. That of only two machines has one digit, rounded outwards."""
    bounds = machine_variance.prediction(list(row.mean_on.values()), row.noise)
    if bounds is None:
        return None
    low, high = map(math.exp, bounds)
    if len(row.mean_on) < MIN_MACHINES_CONFIDENT:
        return f"{one_digit(low, math.floor):g} to {one_digit(high, math.ceil):g}"
    return f"{low:.2f} to {high:.2f}"


def one_digit(number: float, rounded: Callable[[float], int]) -> float:
    """Returns a positive number with one significant digit, by `math.floor` or `math.ceil`."""
    exponent = math.floor(math.log10(number))
    return rounded(number / 10**exponent) * 10**exponent


def _left_out(row: Row) -> str | None:
    return None if row.num_predicted is None else f"{row.num_predicted} of {len(row.mean_on)}"
