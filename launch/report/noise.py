"""The machine's speed beside the runs of a matrix, as shares of its median. Pure."""

from typing import NamedTuple

import numpy as np

from common.record.definition import Record
from launch.report import entries

QUIET_PERCENT = 5.0
# What is measured -> its key in `machine_noise` of a record.
KERNELS = {"product": "product_flops_per_second", "copy": "copy_bytes_per_second"}
TIMES = ("before", "after")


class Sample(NamedTuple):
    """One measurement: the kernel's speed before or after a run, in percent above or below the median."""

    record: Record
    kernel: str
    when: str
    percent: float


def samples(records):
    """The Samples of records, against the median of their matrix at their number of ranks; a record without `machine_noise` has none."""
    measured = {}
    for record in records:
        for kernel, key in KERNELS.items() if record.machine_noise else ():
            for when, speed in zip(TIMES, getattr(record.machine_noise, key), strict=False):
                if speed:
                    measured.setdefault((entries.key_of(record)[0], record.num_ranks, kernel), []).append((record, when, speed))
    return [
        Sample(record, kernel, when, 100 * (speed / median - 1))
        for (_, _, kernel), speeds in measured.items()
        for median in [float(np.median([speed for *_, speed in speeds]))]
        for record, when, speed in speeds
    ]


def farthest(records):
    """[(record, percent)] of the records with a measurement: how far the machine's speed beside the run was from the median, at most."""
    most = {}
    for sample in samples(records):
        record, percent = most.get(id(sample.record), (sample.record, 0.0))
        most[id(sample.record)] = record, max(percent, sample.percent, key=abs)
    return list(most.values())
