"""Whether another run fits into the memory of this node and of its GPUs beside those that are ready."""

from pathlib import Path

import psutil
import pynvml

from common.process import gpus

# The next run may need more than the largest so far, and all grow a little in training.
MARGIN = 1.5
CGROUP = Path("/sys/fs/cgroup")


def has_room(pids_by_run):
    """Whether a run as large as the largest of these, which are ready to train, fits beside them. `pids_by_run`: their process IDs."""
    return all(fits(used, available) for used, available in [on_node(pids_by_run), *on_gpus(pids_by_run)])


def fits(used_bytes_by_run, available_bytes):
    """Whether one more run as large as the largest fits into what is available."""
    return max(used_bytes_by_run, default=0) * MARGIN <= available_bytes


def on_node(pids_by_run):
    """(bytes that each run has for itself, bytes that are available)."""
    return [sum(map(own_bytes, pids)) for pids in pids_by_run], min(psutil.virtual_memory().available, left_in_cgroup())


def own_bytes(pid):
    """The memory of a process that it shares with no other; 0 for one that has ended."""
    try:
        return psutil.Process(pid).memory_full_info().uss
    except psutil.Error:
        return 0


def left_in_cgroup(folder=CGROUP):
    """Bytes up to the limit of this process's control group, as Slurm and containers set it; infinite without a limit."""
    try:
        own = Path("/proc/self/cgroup").read_text().strip().rpartition(":")[2].lstrip("/")
        folder = folder / own if (folder / own / "memory.max").exists() else folder
        return int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text())
    except (OSError, ValueError):
        return float("inf")


def on_gpus(pids_by_run):
    """For each GPU on which runs compute: (bytes of each run, bytes that are free)."""
    try:
        return [
            ([sum(used.get(pid, 0) for pid in pids) for pids in pids_by_run], pynvml.nvmlDeviceGetMemoryInfo(gpu).free)
            for gpu, used in gpus.processes()
        ]
    except pynvml.NVMLError:
        return []
