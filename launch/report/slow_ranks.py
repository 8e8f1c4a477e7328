"""Ranks whose cores are slower than those beside them, which the others wait for in every step."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from common.record.definition import Record
from launch.report.noise import QUIET_PERCENT
from launch.report.words import ranks_of

# The median of fewer is near the slowest of them.
MIN_RANKS = 3


class SlowRank(NamedTuple):
    """A rank of the runs of a size, and by how many percent its cores are slower than those of the median rank."""

    num_ranks: int
    rank: int
    host: str | None
    percent: float

    def __str__(self) -> str:
        place = f" on {self.host}" if self.host else ""
        return f"At {ranks_of(self.num_ranks)}, rank {self.rank}{place} is {self.percent:.0f} % slower than the median."


def slow_ranks(records: Iterable[Record]) -> list[SlowRank]:
    """Returns the ranks that are slower by more than QUIET_PERCENT in the median of their runs, by size and rank."""
    percents: dict[tuple[int, int, str | None], list[float]] = {}
    for record in records:
        speeds = record.machine_noise and record.machine_noise.product_flops_per_second_by_rank
        if not speeds or len(speeds) < MIN_RANKS:
            continue
        median = float(np.median(speeds))
        hosts = record.environment.host_by_rank or [None] * len(speeds)
        for rank, (speed, host) in enumerate(zip(speeds, hosts, strict=True)):
            percents.setdefault((record.num_ranks, rank, host), []).append(100 * (1 - speed / median))
    measured = [SlowRank(*place, float(np.median(values))) for place, values in sorted(percents.items(), key=lambda item: item[0][:2])]
    return [rank for rank in measured if rank.percent > QUIET_PERCENT]
