"""Energy of a run's nodes, where it can be read: of processors and memory through RAPL (Linux powercap), of GPUs through NVML.

RAPL's few files are read here. pyRAPL and pyJoules were last released in 2019 and 2020; Zeus and CodeCarbon bring pandas, which Keras
would then import in every run.
"""

import math
import threading
from pathlib import Path

import numpy as np
import pynvml

POWERCAP = Path("/sys/class/powercap")
# AMD's counters start again after 65 kJ: a package of 1 kW gets there in 65 s, and what comes round twice between readings is lost.
INTERVAL_SECONDS = 20.0
SOURCES = ("RAPL", "NVML")


def begin(ranks, pids):
    """A function that gives, in joules by SOURCES, what was used since now on this rank's node; NaN where that cannot be read.

    The first rank of a node reads for all of them, the others have 0: a package, which is a whole processor with all that runs on
    it, and a GPU, which ranks may share, are then counted once. `pids` are those of all ranks: the GPUs they compute on are in use.
    """
    if ranks.local_rank:
        return lambda: (0.0, 0.0)
    # Opening NVML may take long, and the processors' energy should not hold it.
    gpus = count_gpus(pids)
    packages = count_packages()
    return lambda: (packages(), gpus())


def total(trainer, joules):
    """`energy_joules` and `energy_source` of the record, from what every rank's `begin` returned; called by all ranks.

    What one node cannot read makes the sum NaN: a part of the nodes would pass for all. A virtual machine's counters may stand still.
    """
    found = {source: used for source, used in zip(SOURCES, trainer.sum(np.array(joules())).tolist(), strict=True) if used > 0}
    return {"energy_joules": sum(found.values()) if found else None, "energy_source": " and ".join(found) or None}


def count_packages(root=POWERCAP, interval=INTERVAL_SECONDS):
    """A function that gives the joules since now of this machine's packages and their memory; NaN where they cannot be read."""
    counters = domains(root)
    readings, over = [_read(counters)], threading.Event()

    def follow():
        while not over.wait(interval):
            readings.append(_read(counters))

    def joules():
        over.set()
        return joules_of([*readings, _read(counters)], list(counters.values()))

    if counters and np.isfinite(readings).all():
        threading.Thread(target=follow, daemon=True).start()
    return joules


def domains(root):
    """{counter: the microjoules at which it starts again} of the packages and, beside them, their memory; empty where there are none.

    A package's core and uncore are parts of it, and it is a part of psys, the platform (kernel: include/linux/intel_rapl.h).
    """
    try:
        names = {folder: (folder / "name").read_text().strip() for folder in sorted(root.glob("intel-rapl:*"))}
        counted = [folder for folder, name in names.items() if name.startswith("package-") or name == "dram"]
        return {folder / "energy_uj": int((folder / "max_energy_range_uj").read_text()) for folder in counted}
    except (OSError, ValueError):
        return {}


def joules_of(readings, limits):
    """The joules from the first to the last of (times, counters) microjoules; a counter starts again at its limit. NaN without counters."""
    steps = np.diff(readings, axis=0)
    return float(np.where(steps < 0, steps + limits, steps).sum() / 1e6) if limits else math.nan


def _read(counters):
    """The counters in microjoules; NaN for one that cannot be read, such as by anyone but root."""
    values = []
    for path in counters:
        try:
            values.append(float(path.read_text()))
        except (OSError, ValueError):
            values.append(math.nan)
    return values


def count_gpus(pids):
    """A function that gives the joules since now of the GPUs that processes `pids` compute on; NaN where there are none to read."""
    try:
        pynvml.nvmlInit()
        present = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        used = [gpu for gpu in present if any(one.pid in pids for one in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu))]
    except pynvml.NVMLError:
        used = []
    begun = _millijoules(used)
    return lambda: (_millijoules(used) - begun) / 1000


def _millijoules(gpus):
    """What the GPUs have used since their driver was loaded; NaN where one is too old to tell (before Volta), or there is none."""
    try:
        return sum(pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) for gpu in gpus) if gpus else math.nan
    except pynvml.NVMLError:
        return math.nan
