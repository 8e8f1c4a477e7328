"""How narrow the intervals at a size are, by which a matrix ends its repeats (--until)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from common.record.definition import Record
from launch.report import entries, statistics
from launch.report.entries import Comparison
from launch.report.questions import first
from launch.report.statistics import Ratio
from launch.report.words import ranks_of


class Width(NamedTuple):
    """How wide the widest interval of a ratio to the fastest is at a workload and size, in ± percent of the ratio, after its repeats."""

    percent: float
    num_repeats: int

    def expected_repeats(self, percent: float) -> int:
        """Returns the number of repeats after which the interval should be this narrow: its width falls with their square root."""
        return max(self.num_repeats, math.ceil(self.num_repeats * (self.percent / percent) ** 2))

    def describe(self, percent: float) -> str:
        """Describes how narrow the interval is, and after how many repeats it should be as narrow as `percent`."""
        ending = f"; ±{percent:g} % is expected after {self.expected_repeats(percent)}" if self.percent > percent else ", which is enough"
        return f"every interval within ±{self.percent:.1f} % after {self.num_repeats} repeats{ending}"


def widest(ratios: Sequence[Ratio]) -> Width | None:
    """Returns the width of ratios to the fastest; None where there is none, or one without a verdict."""
    if not ratios or any(ratio.verdict is None for ratio in ratios):
        return None
    percents = [100 * (ratio.high / ratio.value - 1) for ratio in ratios if ratio.high is not None]
    return Width(max(percents), min(ratio.num_below for ratio in ratios))


def of_size(compared: Comparison, size: int) -> Width | None:
    """Returns the width at a size of a comparison; None where there is none."""
    return widest([place.against for place in first.places(compared.of_size(size)) if place.against])


def by_size(records: Iterable[Record]) -> dict[tuple[str, int], Width]:
    """Returns, by workload and number of ranks, the widths of records of one matrix, where there is one."""
    compared_sizes = [(compared, size) for compared in entries.comparisons(entries.split_traced(records)[0]) for size in compared.sizes]
    return {(compared.workload, size): width for compared, size in compared_sizes if (width := of_size(compared, size))}


def describe(width_by_size: Mapping[tuple[str, int], Width], percent: float, max_repeats: int) -> list[str]:
    """Returns a line for each workload and size: how narrow its intervals are, and how many repeats are expected."""
    return [
        f"{workload}, {ranks_of(size)}: {width.describe(percent)}{f', the limit is {max_repeats}' if width.percent > percent else ''}"
        for (workload, size), width in sorted(width_by_size.items())
    ]


def notes(compared: Comparison) -> list[str]:
    """Returns a line for each size of a comparison whose repeats --until was to end: whether it could."""
    percents = statistics.present(record.settings.until for entry in compared.entries for record in entry.records)
    if not percents:
        return []
    percent, lines = min(percents), []
    for size in compared.sizes:
        width = of_size(compared, size)
        effect = width.describe(percent) if width else "no ratio with a verdict ends the repeats"
        lines.append(f"{compared.name}, {ranks_of(size)}, --until {percent:g}: {effect}.")
    return lines
