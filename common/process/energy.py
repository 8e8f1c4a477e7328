"""Energy of a run's nodes: processors and memory through RAPL (Linux powercap), GPUs through NVML.

RAPL is read without a library: pyRAPL and pyJoules were last released in 2019 and 2020, and Zeus and CodeCarbon depend on pandas,
which Keras would then import in every run.
"""

import math
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.process import gpus
from common.process.ranks import Ranks
from common.record.parts import EnergySource
from common.trainer import Trainer

POWERCAP = Path("/sys/class/powercap")
# AMD's counters wrap around after 65 kJ, which a package of 1 kW uses in 65 s. Two wraps between readings would be missed.
INTERVAL_SECONDS = 20.0
SOURCES = ("RAPL", "NVML")


class Energy(NamedTuple):
    """The energy of all nodes, and the SOURCES that have measured it; None where no source can be read on every node."""

    joules: float | None
    source: EnergySource | None


def begin(ranks: Ranks, pids: Collection[int]) -> Callable[[], np.ndarray]:
    """Returns a function for the joules used since now on this rank's node, by SOURCES; NaN for a source that cannot be read.

    The first rank of a node reads for the node and the function of its other ranks gives 0, so that packages and GPUs shared by ranks
    count once. `pids`: the process IDs of all ranks; the GPUs on which they compute are counted.
    """
    if ranks.local_rank:
        return lambda: np.zeros(len(SOURCES))
    # First, because opening NVML may take long and must not be in the processors' energy.
    on_gpus = count_gpus(pids)
    packages = count_packages()
    return lambda: np.array([packages(), on_gpus()])


def total(trainer: Trainer, joules: np.ndarray) -> Energy:
    """Returns the energy of all nodes from this rank's joules by SOURCES. All ranks call this.

    A source that a node cannot read is NaN in the sum and thus left out, and so is a sum of 0: counters of virtual machines may
    not advance.
    """
    of_packages, of_gpus = trainer.sum(joules).tolist()
    if of_packages > 0 and of_gpus > 0:
        return Energy(of_packages + of_gpus, "RAPL and NVML")
    if of_packages > 0:
        return Energy(of_packages, "RAPL")
    return Energy(of_gpus, "NVML") if of_gpus > 0 else Energy(None, None)


def count_packages(root: Path = POWERCAP, interval_seconds: float = INTERVAL_SECONDS) -> Callable[[], float]:
    """Returns a function for the joules used since now by this machine's packages and memory; NaN if they cannot be read."""
    counters = domains(root)
    readings, over = [_read(counters)], threading.Event()

    def follow() -> None:
        while not over.wait(interval_seconds):
            readings.append(_read(counters))

    def joules() -> float:
        readings.append(_read(counters))
        return joules_of(readings, list(counters.values()))

    if counters and np.isfinite(readings).all():
        threading.Thread(target=follow, daemon=True).start()
    # The thread ends when nothing refers to the function any more.
    weakref.finalize(joules, over.set)
    return joules


def domains(root: Path) -> dict[Path, int]:
    """Finds the counters of the packages and their memory, each with the microjoules at which it wraps around.

    Core and uncore are parts of a package, and packages are parts of psys, the platform (kernel: include/linux/intel_rapl.h).
    """
    try:
        names = {folder: (folder / "name").read_text().strip() for folder in sorted(root.glob("intel-rapl:*"))}
        counted = [folder for folder, name in names.items() if name.startswith("package-") or name == "dram"]
        return {folder / "energy_uj": int((folder / "max_energy_range_uj").read_text()) for folder in counted}
    except (OSError, ValueError):
        return {}


def joules_of(readings: Sequence[Sequence[float]], limits: Sequence[int]) -> float:
    """Computes the joules from the first to the last of the readings, of shape (times, counters) and in microjoules; NaN without counters.

    `limits`: the microjoules at which the counters wrap around.
    """
    steps = np.diff(readings, axis=0)
    return float(np.where(steps < 0, steps + limits, steps).sum() / 1e6) if limits else math.nan


def _read(counters: Iterable[Path]) -> list[float]:
    """Reads the counters in microjoules; NaN for a counter that cannot be read (often only root can)."""
    values: list[float] = []
    for path in counters:
        try:
            values.append(float(path.read_text()))
        except (OSError, ValueError):
            values.append(math.nan)
    return values


def count_gpus(pids: Collection[int]) -> Callable[[], float]:
    """Returns a function for the joules used since now by the GPUs on which processes `pids` compute; NaN if there are none."""
    handles = gpus.of_processes(pids)
    begun = _millijoules(handles)
    return lambda: (_millijoules(handles) - begun) / 1000


def _millijoules(handles: Sequence[gpus.Handle]) -> float:
    """Reads the energy of the GPUs since the driver was loaded; NaN without GPUs, or where that of one is not known."""
    return gpus.read(lambda vendor: sum(map(vendor.millijoules, handles)), math.nan) if handles else math.nan
