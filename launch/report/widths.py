"""How narrow the intervals at a size are, by which a matrix ends its repeats (--until). Pure."""

import math
from typing import NamedTuple

from launch.report import entries, statistics
from launch.report.questions import first
from launch.report.words import ranks_of


class Width(NamedTuple):
    """The widest interval of a ratio to the fastest at a workload and size: ± this many percent of the ratio, from this many repeats."""

    percent: float
    num_repeats: int

    def expected_repeats(self, percent):
        """The number of repeats after which the interval should be this narrow: its width falls with their square root."""
        return max(self.num_repeats, math.ceil(self.num_repeats * (self.percent / percent) ** 2))

    def describe(self, percent):
        """How narrow the interval is, and how many repeats it should take to make it as narrow as this."""
        ending = f"; ±{percent:g} % is expected after {self.expected_repeats(percent)}" if self.percent > percent else ", which is enough"
        return f"every interval within ±{self.percent:.1f} % after {self.num_repeats} repeats{ending}"


def widest(ratios):
    """The Width of ratios to the fastest; None where there is none, or one without a verdict."""
    if not ratios or any(ratio.verdict is None for ratio in ratios):
        return None
    return Width(max(100 * (ratio.high / ratio.value - 1) for ratio in ratios), min(ratio.num_below for ratio in ratios))


def of_size(compared, size):
    """The Width at a size of a Comparison, or None."""
    return widest([place.against for place in first.places(compared.of_size(size)) if place.against])


def by_size(records):
    """{(workload, number of ranks): Width} of records of one matrix, where there is one."""
    compared_sizes = [(compared, size) for compared in entries.comparisons(entries.split_traced(records)[0]) for size in compared.sizes]
    return {(compared.workload, size): width for compared, size in compared_sizes if (width := of_size(compared, size))}


def describe(width_by_size, percent, max_repeats):
    """A line for each workload and size: how narrow its intervals are, and how many repeats are expected."""
    return [
        f"{workload}, {ranks_of(size)}: {width.describe(percent)}{f', the limit is {max_repeats}' if width.percent > percent else ''}"
        for (workload, size), width in sorted(width_by_size.items())
    ]


def notes(compared):
    """A line for each size of a Comparison whose repeats --until was to end: whether it could."""
    percents = statistics.present(record.settings.until for entry in compared.entries for record in entry.records)
    if not percents:
        return []
    percent, lines = min(percents), []
    for size in compared.sizes:
        width = of_size(compared, size)
        effect = width.describe(percent) if width else "no ratio with a verdict ends the repeats"
        lines.append(f"{compared.name}, {ranks_of(size)}, --until {percent:g}: {effect}.")
    return lines
