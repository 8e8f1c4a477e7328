"""When a matrix has repeated enough: every interval at a size is narrow. Pure."""

import math
from typing import NamedTuple

from common.errors import UserError
from launch.report import entries
from launch.report.questions import first
from launch.report.statistics import MIN_RUNS_CONFIDENT
from launch.report.words import ranks_of


class Width(NamedTuple):
    """The widest interval of a ratio to the fastest at a workload and size: ± this many percent of the ratio, from this many repeats."""

    percent: float
    num_repeats: int

    def expected_repeats(self, percent):
        """The number of repeats after which the interval should be this narrow: its width falls with their square root."""
        return max(self.num_repeats, math.ceil(self.num_repeats * (self.percent / percent) ** 2))


def check(percent, num_repeats):
    """Raises UserError for a number of repeats that is too small for a verdict; `percent` None: repeat `num_repeats` times."""
    if percent is not None and num_repeats < MIN_RUNS_CONFIDENT:
        raise UserError(f"--until needs --repeats as its limit, at least {MIN_RUNS_CONFIDENT}, which a verdict takes; it is {num_repeats}")


def widths(records):
    """{(workload, number of ranks): Width} of records of one matrix, where backends are compared and there are enough for a verdict."""
    width_by_size = {}
    for compared in entries.comparisons(entries.split_traced(records)[0]):
        for size in {entry.num_ranks for entry in compared.entries}:
            ratios = [place.against for place in first.places(compared.of_size(size)) if place.against]
            if ratios and all(ratio.verdict is not None for ratio in ratios):
                widest = max(100 * (ratio.high / ratio.value - 1) for ratio in ratios)
                width_by_size[compared.workload, size] = Width(widest, min(ratio.num_below for ratio in ratios))
    return width_by_size


def describe(width_by_size, percent, max_repeats):
    """A line for each workload and size: how narrow its intervals are, and how many repeats are expected."""
    lines = []
    for (workload, size), width in sorted(width_by_size.items()):
        interval = f"{workload}, {ranks_of(size)}: every interval within ±{width.percent:.1f} % after {width.num_repeats} repeats"
        expected = width.expected_repeats(percent)
        ending = "" if width.percent <= percent else f"; ±{percent:g} % is expected after {expected}, the limit is {max_repeats}"
        lines.append(interval + (ending or ", which is enough"))
    return lines
