"""The memory of this node: bytes that are free, also on its GPUs, and how the C library keeps them for this process."""

import ctypes
import platform
from pathlib import Path

import psutil
import pynvml

from common.process import gpus

CGROUP = Path("/sys/fs/cgroup")
# Of files on disks that Linux keeps in memory, and frees where a process needs it.
RECLAIMABLE = ("inactive_file", "active_file")
# malloc.h: parameter numbers of mallopt(3).
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
KEEP = {M_MMAP_THRESHOLD: 1 << 30, M_TRIM_THRESHOLD: (1 << 31) - 1, M_TOP_PAD: 64 << 20}


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


def keep_large_buffers():
    """Makes glibc serve buffers up to 1 GiB from memory that it keeps. Returns whether it does; other C libraries are not configured.

    By default glibc maps each activation of some MiB with mmap at every step, and the kernel clears its pages.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return all(library.mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in KEEP.items())
