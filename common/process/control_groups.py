"""The control groups of this process, of both versions, with every group above: Slurm and containers set limits on any of them."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/cgroup")
OF_PROCESS = Path("/proc/self/cgroup")
# Where version 2 is mounted beside controllers of version 1.
UNIFIED = "unified"
MICROSECONDS, NANOSECONDS = 1e-6, 1e-9


class Memory(NamedTuple):
    """The limit of a group, the memory of its processes, and the part of that memory with cached files, which Linux frees on demand."""

    limit_bytes: int
    used_bytes: int
    reclaimable_bytes: int

    @property
    def room_bytes(self) -> int:
        return self.limit_bytes - self.used_bytes + self.reclaimable_bytes


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


def throttled_seconds(root: Path = ROOT, of_process: Path = OF_PROCESS) -> float:
    """Reads the seconds in which a quota has kept the groups of this process from running, added up over cores; NaN without a group."""
    statistics = [_numbers(folder / "cpu.stat") for folder in folders("cpu", root, of_process)]
    units = {"throttled_usec": MICROSECONDS, "throttled_time": NANOSECONDS}
    seconds = [float(numbers[name]) * unit for numbers in statistics for name, unit in units.items() if name in numbers]
    return sum(seconds) if seconds else math.nan


def _numbers(path: Path) -> dict[str, str]:
    """Reads a file with a name and a number on each line; empty where it cannot be read."""
    try:
        return dict(line.split() for line in path.read_text().splitlines())
    except (OSError, ValueError):
        return {}
