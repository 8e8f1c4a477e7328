"""The law of the forecast, and its band: both from a user's own sizes and from the published tables.

Weak scaling loses the same share of efficiency with each doubling. Under strong scaling a share of an epoch's time does not shrink.
The loss that a table's first and last sizes show is shrunk towards the median of the published tables: the more, the fewer doublings the
sizes span. The band is split conformal: it holds 90 % of what was measured, where each source and machine was forecast from the others.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from launch.forecast.tables import Table

# How many doublings of a user's own sizes weigh as much as the published tables.
PUBLISHED_WEIGHS = {"weak": 2.0, "strong": 0.1}
COVERED = 0.9
ROUNDING = 1e-9


class HeldOut(NamedTuple):
    """How well a size of a published table was forecast from smaller ones of it and the tables of other groups.

    `doublings` are those beyond the largest size that was used. `error` is the logarithm to base 2 of the forecast over what was measured.
    """

    table: Table
    crosses_edge: bool | None
    doublings: float
    error: float


class Band(NamedTuple):
    """How far a measurement lies below and above a forecast one doubling beyond, in logarithms to base 2, and from how many tables."""

    below: float
    above: float
    num_tables: int


class Forecast(NamedTuple):
    """Throughput at a size, with its band."""

    size: int
    throughput: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """The upper end of the band over the lower."""
        return self.high / self.low


class Law(NamedTuple):
    """What the published tables say by scaling: the median loss; and the bands, also by whether a forecast crosses a node's edge."""

    losses: dict[str, float]
    bands: dict[tuple[str, bool | None], Band]


def law_of(published: Sequence[Table]) -> Law:
    """Returns the law of published tables."""
    errors = list(held_out(published))
    bands: dict[tuple[str, bool | None], Band] = {}
    bands["strong", None] = _band([trial for trial in errors if trial.table.scaling == "strong"])
    weak = [trial for trial in errors if trial.table.scaling == "weak"]
    bands["weak", None] = _band(weak)
    for crosses in (False, True):
        bands["weak", crosses] = _band([trial for trial in weak if trial.crosses_edge is crosses])
    return Law(losses_of(published), bands)


def forecast(table: Table, size: int, law: Law) -> Forecast:
    """Forecasts the throughput at a size above all measured ones."""
    # So few strong tables are published that their band is not divided.
    crosses = crosses_edge(table, size) if table.scaling == "weak" else None
    band, spread = law.bands[table.scaling, crosses], math.sqrt(math.log2(size / table.largest))
    throughput = expected(table, size, law.losses[table.scaling])
    return Forecast(size, throughput, throughput / 2 ** (band.below * spread), throughput * 2 ** (band.above * spread))


def expected(table: Table, size: int, published_loss: float) -> float:
    """Returns the throughput at a size above all measured ones, where published tables of the scaling have this loss."""
    doublings = math.log2(table.largest / table.sizes[0])
    weight = doublings / (doublings + PUBLISHED_WEIGHS[table.scaling])
    # Nobody's efficiency rises for ever.
    loss = max(weight * loss_of(table) + (1 - weight) * published_loss, 0)
    beyond = size / table.largest
    speedup = beyond ** (1 - loss) if table.scaling == "weak" else 1 / (min(loss, 1) + (1 - min(loss, 1)) / beyond)
    return table.throughputs[table.largest] * speedup


def loss_of(table: Table) -> float:
    """Returns the loss from the smallest to the largest size.

    Under weak scaling it is how much of each doubling is lost, as 1 less the exponent of the throughput. Under strong scaling it is the
    share of the time at the largest size that does not shrink with more GPUs, by Amdahl's law.
    """
    ratio = table.largest / table.sizes[0]
    speedup = table.throughputs[table.largest] / table.throughputs[table.sizes[0]]
    return 1 - math.log(speedup) / math.log(ratio) if table.scaling == "weak" else (ratio - speedup) / (ratio - 1)


def losses_of(published: Iterable[Table]) -> dict[str, float]:
    """Returns by scaling the median over groups of their median loss; under strong scaling that of the first two sizes."""
    by_group: dict[tuple[str, tuple[str, str]], list[float]] = defaultdict(list)
    for table in published:
        used = table.until(2) if table.scaling == "strong" else table
        by_group[table.scaling, table.group].append(loss_of(used))
    medians: dict[str, list[float]] = {"weak": [], "strong": []}
    for (scaling, _), losses in by_group.items():
        medians[scaling].append(median(losses))
    return {scaling: median(losses) for scaling, losses in medians.items() if losses}


def held_out(published: Sequence[Table]) -> Iterator[HeldOut]:
    """Forecasts each size of each published table from two or more smaller ones, without the tables of its source and machine."""
    for group in sorted({table.group for table in published}):
        losses = losses_of(table for table in published if table.group != group)
        for table in published:
            # Nothing can be said of the only group of a scaling.
            if table.group != group or table.scaling not in losses:
                continue
            for num_used in range(2, len(table.sizes)):
                used = table.until(num_used)
                for size in table.sizes[num_used:]:
                    error = math.log2(expected(used, size, losses[table.scaling]) / table.throughputs[size])
                    yield HeldOut(table, crosses_edge(used, size), math.log2(size / used.largest), error)


def crosses_edge(table: Table, size: int) -> bool | None:
    """Returns whether a size needs several nodes while all measured ones had one; None where the GPUs of a node are not known."""
    return None if table.gpus_per_node is None else table.largest <= table.gpus_per_node < size


def _band(trials: Iterable[HeldOut]) -> Band:
    """Returns the band that holds the share COVERED of forecasts one doubling beyond, with equal weight for each table."""
    errors_of: dict[str, list[float]] = defaultdict(list)
    for trial in trials:
        errors_of[trial.table.name].append(trial.error / math.sqrt(trial.doublings))
    weighed = [(error, 1 / len(errors)) for errors in errors_of.values() for error in errors]
    num_tables = len(errors_of)
    # That of a conformal forecast, at either end. Few tables do not show it: the largest error then stands for both ends.
    probability = (1 - (1 - COVERED) / 2) * (1 + 1 / num_tables)
    below, above = (max(_quantile([(sign * error, weight) for error, weight in weighed], min(probability, 1)), 0) for sign in (1, -1))
    return Band(max(below, above), max(below, above), num_tables) if probability > 1 else Band(below, above, num_tables)


def _quantile(weighed: Iterable[tuple[float, float]], probability: float) -> float:
    """Returns the smallest of values at or below which lies this share of all weight."""
    weighed = sorted(weighed)
    share, reached = probability * sum(weight for _, weight in weighed), 0.0
    for value, weight in weighed:
        reached += weight
        if reached >= share - ROUNDING:
            return value
    return weighed[-1][0]
