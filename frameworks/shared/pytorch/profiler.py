"""PyTorch's profiler over some steps of an epoch: their trace, and the collectives in it."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile

from common.trainer import Schedule
from frameworks.shared.pytorch.collective_names import is_collective

NUM_ROWS = 60
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


def collectives(train: Callable[[], None]) -> tuple[float, list[str]]:
    """Profiles train() with PyTorch's profiler. Returns the seconds in which a collective ran, and the name of each in the trace."""
    with profile(activities=activities()) as profiler:
        train()
        time.sleep(LATE_SECONDS)
    events = [event for event in profiler.events() or () if is_collective(event.name)]
    spans = [(event.time_range.start, event.time_range.end) for event in events]
    return covered(spans) / 1e6, [event.name for event in events]


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Returns the length of the union of (start, end) intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
