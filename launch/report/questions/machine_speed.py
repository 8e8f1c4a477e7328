"""Whether the machine was as fast beside every run: from the kernels before and after it, and whether one rank's cores are slower."""

from collections.abc import Iterable

import numpy as np

from common.record.definition import Record
from common.words import ranks_of
from launch.report import table
from launch.report.findings import Findings
from launch.report.runs import Runs

QUESTION = "Was the machine as fast beside every run?"
# A larger deviation is told.
STEADY_PERCENT = 5.0
# The key of the speeds of each kernel in `machine_noise` of a record.
KERNELS = ("product_flops_per_second", "copy_bytes_per_second")
TIMES = ("before", "after")
# The median of fewer ranks is near the slowest of them.
MIN_RANKS = 3


def answer(runs: Runs) -> Findings:
    """Answers for the runs of all comparisons."""
    records = runs.compared
    sentences = describe_speed(records)
    if unknown := sum(record.status == "ok" and not record.machine_noise for record in records):
        sentences.append(f"It was not measured beside {unknown} runs, whose records are older.")
    return Findings([*sentences, *_slow_ranks(records)], [])


def describe_speed(records: Iterable[Record]) -> list[str]:
    """Returns the sentence on beside how many runs the machine was as fast as in the median, and when least; none if not measured.

    The deviation is from the median of a kernel in a matrix at a number of ranks.
    """
    speeds_of: dict[tuple[str, int, str], dict[tuple[str, str | None], float]] = {}
    for record in records:
        for kernel in KERNELS if record.machine_noise else ():
            speed_at = speeds_of.setdefault((table.matrix(record), record.num_ranks, kernel), {})
            for when, speed in zip(TIMES, getattr(record.machine_noise, kernel), strict=False):
                if speed:
                    speed_at[when, record.settings.run_id] = speed
    percent_at = {
        (kernel, *at): 100 * (speed / float(np.median(list(speed_at.values()))) - 1)
        for (*_, kernel), speed_at in speeds_of.items()
        for at, speed in speed_at.items()
    }
    if not percent_at:
        return []
    num_runs = len({run for *_, run in percent_at})
    deviating = {run for (*_, run), percent in percent_at.items() if abs(percent) > STEADY_PERCENT}
    steady = f"The machine's speed was within {STEADY_PERCENT:g} % of its median"
    if not deviating:
        return [f"{steady} before and after every run."]
    (_, when, run), percent = max(percent_at.items(), key=lambda item: abs(item[1]))
    largest = f"{abs(percent):.0f} % {'above' if percent > 0 else 'below'} it {when} {run}"
    return [f"{steady} beside {num_runs - len(deviating)} of {num_runs} runs, and {largest}."]


def _slow_ranks(records: Iterable[Record]) -> list[str]:
    """Returns a sentence on each rank whose cores are slower by more than STEADY_PERCENT in the median of its runs, by size and rank.

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
        if (percent := float(np.median(of_runs))) > STEADY_PERCENT
    ]
