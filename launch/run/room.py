"""Whether runs fit into the memory of this node and of its GPUs: each by itself, and another one beside those that are ready."""

import psutil
import pynvml

from common import workloads
from common.cost import memory_estimate
from common.process import gpus, node_memory

# The next run may need more than the largest so far, and all grow a little in training.
MARGIN = 1.5


def expect_room(jobs):
    """Raises UserError for the first job whose state does not fit into the memory of this node, on which the jobs run."""
    for job in jobs:
        settings = workloads.resolve(job.settings, job.degree)
        memory_estimate.expect_room(job.backend, settings, job.num_ranks, job.ranks_per_node, settings.device)


def has_room(pids_by_run):
    """Whether a run as large as the largest of these, which are ready to train, fits beside them. `pids_by_run`: their process IDs."""
    memories = [on_node(pids_by_run), *on_gpus(pids_by_run)]
    return all(max(bytes_by_run, default=0) * MARGIN <= available_bytes for bytes_by_run, available_bytes in memories)


def on_node(pids_by_run):
    """Returns (bytes that each run has for itself, bytes that are available)."""
    return [sum(map(own_bytes, pids)) for pids in pids_by_run], node_memory.available()


def own_bytes(pid):
    """The memory of a process that it shares with no other; 0 for one that has ended."""
    try:
        return psutil.Process(pid).memory_full_info().uss
    except psutil.Error:
        return 0


def on_gpus(pids_by_run):
    """Returns (bytes of each run, bytes that are free) for each GPU on which runs compute."""
    try:
        return [
            ([sum(bytes_by_pid.get(pid, 0) for pid in pids) for pids in pids_by_run], pynvml.nvmlDeviceGetMemoryInfo(gpu).free)
            for gpu, bytes_by_pid in gpus.processes()
        ]
    except pynvml.NVMLError:
        return []
