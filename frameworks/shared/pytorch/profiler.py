"""PyTorch's profiler over some steps of an epoch: their trace, and the collectives in it."""

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile

from common.trainer import Schedule
from frameworks.shared.pytorch.collective_names import is_collective

NUM_ROWS = 60
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
# Gloo's thread reports a collective's end to DDP first and then to PyTorch's profiler. A profiler that has stopped by then has freed memory
# that the thread writes to, and some runs in thousands crash. PyTorch does not show when the thread is done; it takes milliseconds at most.
LATE_SECONDS = 0.2


def activities() -> list[ProfilerActivity]:
    """Returns what can be profiled: the CPU, and a GPU where there is one."""
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]


@contextlib.contextmanager
def profiled(folder: Path, rank: int, schedule: Schedule) -> Iterator[Callable[[], None]]:
    """Gives the function to call after each step. Writes operators with shapes and memory, as a table and as a Chrome trace."""

    def keep(profiler: profile) -> None:
        profiler.export_chrome_trace(str(folder / f"torch.{rank}.json.gz"))
        by = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        (folder / f"torch.{rank}.txt").write_text(profiler.key_averages().table(sort_by=by, row_limit=NUM_ROWS) + "\n")

    action_of = torch.profiler.schedule(**schedule._asdict(), repeat=1)

    def action(step: int) -> ProfilerAction:
        # The profiler calls this after the end of a step in the trace, and stops by what it returns.
        if step == sum(schedule):
            time.sleep(LATE_SECONDS)
        return action_of(step)

    with profile(activities=activities(), schedule=action, on_trace_ready=keep, record_shapes=True, profile_memory=True) as profiler:
        yield profiler.step


def collectives(train: Callable[[], None], unnamed: str | None = None) -> tuple[float, dict[str, list[float]]]:
    """Profiles train() with PyTorch's profiler.

    Returns the seconds in which a collective ran, and when each call of each began, in seconds since 1970. `unnamed` is the collective of
    kernels that do not say which they are.
    """
    with profile(activities=activities()) as profiler:
        train()
        time.sleep(LATE_SECONDS)
    events = [event for event in profiler.events() or () if is_collective(event.name)]
    spans = [(event.time_range.start, event.time_range.end) for event in events]
    # It is there once the profiler has ended.
    finished: Any = profiler.profiler
    begun = finished.kineto_results.trace_start_ns() / 1e9
    starts: dict[str, list[float]] = {}
    for event in events:
        starts.setdefault(operation(event.name, unnamed), []).append(begun + event.time_range.start / 1e6)
    return covered(spans) / 1e6, starts


def operation(name: str, unnamed: str | None = None) -> str:
    """Returns the collective in a name of PyTorch's profiler, such as gloo:all_reduce or ncclDevKernel_AllReduce_Sum_f32_RING_LL.

    RCCL has one kernel for all, ncclDevKernel_Generic_4: it is `unnamed`, where that is known, else the name itself.
    """
    letters = re.sub("[^a-z]", "", name.lower())
    of_all = unnamed if unnamed and "kernelgeneric" in letters else name
    return next((collective for collective in OPERATIONS if collective.replace("_", "") in letters), of_all)


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Returns the length of the union of (start, end) intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
