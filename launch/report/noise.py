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


class Farthest(NamedTuple):
    """How far the machine's speed beside a run was from the median at most, in percent above or below it."""

    record: Record
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


def farthest(records: Iterable[Record]) -> list[Farthest]:
    """Returns for each record with a measurement how far the machine's speed was from the median at most."""
    most: dict[int, Farthest] = {}
    for sample in samples(records):
        record, percent = most.get(id(sample.record), (sample.record, 0.0))
        most[id(sample.record)] = Farthest(record, max(percent, sample.percent, key=abs))
    return list(most.values())
