"""Bytes that are free on this node and on its GPUs."""

from pathlib import Path

import psutil
import pynvml

from common.process import gpus

CGROUP = Path("/sys/fs/cgroup")
# Of files on disks that Linux keeps in memory, and frees where a process needs it.
RECLAIMABLE = ("inactive_file", "active_file")


def available():
    """Returns the bytes that processes of this node can still have, by its memory and the limit of this process's control group."""
    return min(psutil.virtual_memory().available, left_in_cgroup())


def total(folder=CGROUP):
    """Returns the bytes of this node, or those of this process's control group where it has fewer."""
    try:
        return min(psutil.virtual_memory().total, int((_own_cgroup(folder) / "memory.max").read_text()))
    except (OSError, ValueError):
        return psutil.virtual_memory().total


def left_in_cgroup(folder=CGROUP):
    """Returns the bytes up to the limit of this process's control group, as Slurm and containers set it; infinite without a limit."""
    try:
        folder = _own_cgroup(folder)
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        reclaimable = sum(int(statistics.get(name, 0)) for name in RECLAIMABLE)
        return int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text()) + reclaimable
    except (OSError, ValueError):
        return float("inf")


def _own_cgroup(folder):
    """Returns the folder of this process's control group, or the one above all where a container hides it."""
    cgroup = folder / Path("/proc/self/cgroup").read_text().strip().rpartition(":")[2].lstrip("/")
    return cgroup if (cgroup / "memory.max").exists() else folder


def available_on_gpu():
    """Returns the bytes that are free on the GPU of this node that has most; infinite where NVML tells none."""
    sizes_bytes = gpus.read_nvml(lambda: [pynvml.nvmlDeviceGetMemoryInfo(gpu).free for gpu, _ in gpus.processes()], [])
    return max(sizes_bytes, default=float("inf"))
