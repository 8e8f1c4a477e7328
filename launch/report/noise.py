"""The machine's speed beside the runs of a matrix, as shares of its median."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from common.record.definition import Record
from launch.report import entries

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


def sentences(records: Iterable[Record]) -> list[str]:
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
