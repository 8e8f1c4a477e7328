"""The limits of this process and the memory of its node: control groups, free memory, memory that ranks share, and what the kernel killed.

Control groups are of both versions, with every group above: Slurm and containers set limits on any of them.
"""

import ctypes
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path("/sys/fs/cgroup")
OF_PROCESS = Path("/proc/self/cgroup")
# Where version 2 is mounted beside controllers of version 1.
UNIFIED = "unified"
VMSTAT = Path("/proc/vmstat")
# Through it the ranks of a node exchange: a container has 64 MB of it by default.
SHARED_MEMORY = Path("/dev/shm")
# What MPICH takes there, measured at 2 to 16 ranks.
SHARED_BYTES_PER_RANK = 5.4e6
SHARED_MEMORY_REMEDY = (
    "make it larger (mount -o remount,size=1g /dev/shm, or --shm-size=1g of docker), or remove what is left of ended runs there"
)
LESS_MEMORY = "a smaller --batch-size, or fsdp on several ranks would need less"
MB = 1e6
# malloc.h: parameter numbers of mallopt(3).
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
KEEP = {M_MMAP_THRESHOLD: 1 << 30, M_TRIM_THRESHOLD: (1 << 31) - 1, M_TOP_PAD: 64 << 20}


class Memory(NamedTuple):
    """The limit of a group, the memory of its processes, and the part of that memory with cached files, which Linux frees on demand."""

    limit_bytes: int
    used_bytes: int
    reclaimable_bytes: int


def folders(controller: str, root: Path = ROOT, of_process: Path = OF_PROCESS) -> Iterator[Path]:
    """Yields the folders of the groups that limit this process by a controller, the innermost first, without those that a container hides.

    A group of version 2 has all controllers in one folder.
    """
    try:
        lines = of_process.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mounted = [root / name for name in ((controllers, controller) if controllers else (UNIFIED, "."))]
        top = next(filter(Path.is_dir, mounted), None)
        if top:
            group = Path(path.lstrip("/"))
            yield from filter(Path.is_dir, (top / above for above in (group, *group.parents) if ".." not in above.parts))


def memories(root: Path = ROOT, of_process: Path = OF_PROCESS) -> list[Memory]:
    """Lists the Memory of every group of this process that has a limit."""
    return [memory for folder in folders("memory", root, of_process) if (memory := _memory(folder))]


def _memory(folder: Path) -> Memory | None:
    limit, used, prefix = "memory.max", "memory.current", ""
    if not (folder / limit).exists():
        # Version 1 counts the files of the groups below under other names.
        limit, used, prefix = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
    numbers = _numbers(folder / "memory.stat")
    reclaimable = sum(int(numbers.get(f"{prefix}{kind}_file", 0)) for kind in ("inactive", "active"))
    try:
        return Memory(int((folder / limit).read_text()), int((folder / used).read_text()), reclaimable)
    except (OSError, ValueError):
        return None


def quota_cores(root: Path = ROOT, of_process: Path = OF_PROCESS) -> float | None:
    """Computes the cores whose time this process and those beside it may use, by the smallest CPU quota; None without a quota."""
    return min(filter(None, (_quota(folder) for folder in folders("cpu", root, of_process))), default=None)


def _quota(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):
        # Version 2 writes `max` where there is no quota.
        return None


def _numbers(path: Path) -> dict[str, str]:
    """Reads a file with a name and a number on each line; empty where it cannot be read."""
    try:
        return dict(line.split() for line in path.read_text().splitlines())
    except (OSError, ValueError):
        return {}


def available_bytes() -> float:
    """Computes the bytes that processes of this node can still have, by its memory and the limits of all control groups of this process."""
    of_groups = (memory.limit_bytes - memory.used_bytes + memory.reclaimable_bytes for memory in memories())
    return min([psutil.virtual_memory().available, *of_groups])


def total_bytes() -> int:
    """Computes the bytes of this node, or the smallest limit of this process's control groups where that is less."""
    return min([psutil.virtual_memory().total, *(memory.limit_bytes for memory in memories())])


def keep_large_buffers() -> None:
    """Makes glibc serve buffers up to 1 GiB from memory that it keeps; other C libraries are not configured.

    By default glibc maps each activation of some MiB with mmap at every step, and the kernel clears its pages.
    """
    if platform.libc_ver()[0] == "glibc":
        for name, value in KEEP.items():
            ctypes.CDLL(None).mallopt(ctypes.c_int(name), ctypes.c_int(value))


class SharedMemory(NamedTuple):
    """Bytes of /dev/shm that are free, and in all."""

    free: int
    total: int


def shared_memory(folder: Path = SHARED_MEMORY) -> SharedMemory | None:
    """Returns the SharedMemory of this node; None where it has no such folder."""
    try:
        file_system = os.statvfs(folder)
    except OSError:
        return None
    return SharedMemory(file_system.f_bavail * file_system.f_frsize, file_system.f_blocks * file_system.f_frsize)


def needed_shared_memory(num_ranks: int) -> float:
    """Bytes that so many ranks of a node take."""
    return num_ranks * SHARED_BYTES_PER_RANK


def describe_shared_memory(memory: SharedMemory, num_ranks: int) -> str:
    """Describes the SharedMemory of a node beside what its ranks take."""
    ranks = "1 rank takes" if num_ranks == 1 else f"{num_ranks} ranks take"
    free, total = memory.free / MB, memory.total / MB
    return f"/dev/shm has {free:.0f} of {total:.0f} MB free, and with MPICH {ranks} {needed_shared_memory(num_ranks) / MB:.0f}"


def num_oom_kills(path: Path = VMSTAT) -> int | None:
    """Counts the processes that the kernel's OOM killer has ended on this node since boot, also within cgroups; None if not known."""
    try:
        match = re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None
