"""The machine's speed beside the runs of a matrix, as shares of its median. Pure."""

from typing import NamedTuple

import numpy as np

from launch.report import entries

QUIET_PERCENT = 5.0
# What is measured -> its key in `machine_noise` of a record.
KERNELS = {"product": "product_flops_per_second", "copy": "copy_bytes_per_second"}
TIMES = ("before", "after")


class Sample(NamedTuple):
    """One measurement: the kernel's speed before or after a run, in percent above or below the median."""

    run: dict
    kernel: str
    when: str
    percent: float


def samples(found):
    """The Samples of records, against the median of their matrix at their number of ranks; a record without `machine_noise` has none."""
    measured = {}
    for run in found:
        noise = run.get("machine_noise") or {}
        for kernel, key in KERNELS.items():
            for when, speed in zip(TIMES, noise.get(key, ()), strict=False):
                if speed:
                    measured.setdefault((entries.key_of(run)[0], run["num_ranks"], kernel), []).append((run, when, speed))
    return [
        Sample(run, kernel, when, 100 * (speed / median - 1))
        for (_, _, kernel), speeds in measured.items()
        for median in [float(np.median([speed for *_, speed in speeds]))]
        for run, when, speed in speeds
    ]


def farthest(found):
    """[(run, percent)] of the records with a measurement: how far the machine's speed beside the run was from the median, at most."""
    most = {}
    for sample in samples(found):
        run, percent = most.get(id(sample.run), (sample.run, 0.0))
        most[id(sample.run)] = run, max(percent, sample.percent, key=abs)
    return list(most.values())
