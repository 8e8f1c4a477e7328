"""Whether the machine was as fast beside every run: from the kernels before and after it, and whether one rank's cores are slower."""

from collections.abc import Iterable, Sequence

import numpy as np

from common.record.definition import Record
from common.words import ranks_of
from launch.report import noise
from launch.report.noise import QUIET_PERCENT
from launch.report.tables import Findings

QUESTION = "How quiet was the machine?"
# The median of fewer ranks is near the slowest of them.
MIN_RANKS = 3


def answer(records: Sequence[Record]) -> Findings:
    """Answers for the records of all comparisons."""
    sentences = noise.sentences(records)
    if unknown := sum(record.status == "ok" and not record.machine_noise for record in records):
        sentences.append(f"It was not measured beside {unknown} runs, whose records are older.")
    return Findings([*sentences, *_slow_ranks(records)], [])


def _slow_ranks(records: Iterable[Record]) -> list[str]:
    """Returns a sentence on each rank whose cores are slower by more than QUIET_PERCENT in the median of its runs, by size and rank.

    The others wait for such a rank in every step.
    """
    percents: dict[tuple[int, int, str | None], list[float]] = {}
    for record in records:
        speeds = record.machine_noise and record.machine_noise.product_flops_per_second_by_rank
        if not speeds or len(speeds) < MIN_RANKS:
            continue
        median = float(np.median(speeds))
        hosts = record.environment.host_by_rank or [None] * len(speeds)
        for rank, (speed, host) in enumerate(zip(speeds, hosts, strict=True)):
            percents.setdefault((record.num_ranks, rank, host), []).append(100 * (1 - speed / median))
    return [
        f"At {ranks_of(num_ranks)}, rank {rank}{f' on {host}' if host else ''} is {percent:.0f} % slower than the median."
        for (num_ranks, rank, host), of_runs in sorted(percents.items(), key=lambda item: item[0][:2])
        if (percent := float(np.median(of_runs))) > QUIET_PERCENT
    ]
