"""Whether the machine was as fast beside every run: from the kernels before and after it, and whether one rank's cores are slower."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from common.record.definition import Record
from common.words import ranks_of
from launch.report import entries
from launch.report.tables import Findings

QUESTION = "How quiet was the machine?"
# The median of fewer ranks is near the slowest of them.
MIN_RANKS = 3
QUIET_PERCENT = 5.0
# The key of each kernel in `machine_noise` of a record.
KERNELS = {"product": "product_flops_per_second", "copy": "copy_bytes_per_second"}
TIMES = ("before", "after")


class Sample(NamedTuple):
    """One measurement: the kernel's speed before or after a run, in percent above or below the median."""

    record: Record
    kernel: str
    when: str
    percent: float


def answer(records: Sequence[Record]) -> Findings:
    """Answers for the records of all comparisons."""
    sentences = speed_sentences(records)
    if unknown := sum(record.status == "ok" and not record.machine_noise for record in records):
        sentences.append(f"It was not measured beside {unknown} runs, whose records are older.")
    return Findings([*sentences, *_slow_ranks(records)], [])


def samples(records: Iterable[Record]) -> list[Sample]:
    """Returns the samples of records, against the median of their matrix at their number of ranks; none of one without `machine_noise`."""
    measured: dict[tuple[str, int, str], list[tuple[Record, str, float]]] = {}
    for record in records:
        for kernel, key in KERNELS.items() if record.machine_noise else ():
            for when, speed in zip(TIMES, getattr(record.machine_noise, key), strict=False):
                if speed:
                    measured.setdefault((entries.key_of(record).matrix, record.num_ranks, kernel), []).append((record, when, speed))
    return [
        Sample(record, kernel, when, 100 * (speed / median - 1))
        for (_, _, kernel), speeds in measured.items()
        for median in [float(np.median([speed for *_, speed in speeds]))]
        for record, when, speed in speeds
    ]


def speed_sentences(records: Iterable[Record]) -> list[str]:
    """Returns the sentence on the largest deviation of the machine's speed from its median; none where it was not measured."""
    measured = samples(records)
    if not measured:
        return []
    largest = max(measured, key=lambda sample: abs(sample.percent))
    if abs(largest.percent) <= QUIET_PERCENT:
        return [f"The machine's speed was within {QUIET_PERCENT:g} % of its median before and after every run."]
    side = "above" if largest.percent > 0 else "below"
    run_id = largest.record.settings.run_id
    return [f"The machine's speed was up to {abs(largest.percent):.0f} % {side} its median: {largest.when} {run_id}."]


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
