"""Finds whether runs fit into the memory of this node and of its GPUs: each by itself, and another one beside those that are ready."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import psutil

from common import workloads
from common.cost import state_memory
from common.process import gpus, machine
from launch.run.plan import Job

# The next run may need more than the largest so far, and all grow a little in training.
MARGIN = 1.5


class Memory(NamedTuple):
    """Memory of the node or of a GPU: the bytes that each run has for itself, and the bytes that are available."""

    bytes_by_run: list[int]
    available_bytes: float


def expect_room(jobs: Iterable[Job]) -> None:
    """Raises UserError for the first job whose state does not fit into the memory of this node, on which the jobs run."""
    for job in jobs:
        settings = workloads.resolve(job.settings, job.degree)
        state_memory.expect_room(job.backend, settings, job.num_ranks, job.ranks_per_node, settings.device)


def has_room(pids_by_run: Sequence[Sequence[int]]) -> bool:
    """Returns whether a run as large as the largest of these, which are ready to train, fits beside them."""
    memories = [on_node(pids_by_run), *on_gpus(pids_by_run)]
    return all(max(bytes_by_run, default=0) * MARGIN <= available_bytes for bytes_by_run, available_bytes in memories)


def on_node(pids_by_run: Iterable[Iterable[int]]) -> Memory:
    """Returns the memory of this node. Of a run it counts what each of its processes shares with no other process."""
    return Memory([sum(map(unshared_bytes, pids)) for pids in pids_by_run], machine.available_bytes())


def unshared_bytes(pid: int) -> int:
    """Returns the memory that a process shares with no other; 0 for a process that has ended."""
    try:
        return psutil.Process(pid).memory_full_info().uss
    except psutil.Error:
        return 0


def on_gpus(pids_by_run: Sequence[Iterable[int]]) -> list[Memory]:
    """Returns the memory of each GPU of this node; empty where that is not known."""
    return [
        Memory([sum(bytes_by_pid.get(pid, 0) for pid in pids) for pids in pids_by_run], free_bytes)
        for (_, bytes_by_pid), free_bytes in zip(gpus.processes(), gpus.free_bytes(), strict=False)
    ]
