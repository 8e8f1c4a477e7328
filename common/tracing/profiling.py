"""A profiled training epoch: the framework's profiler, and the spans of each step and of each wait for data.

Works for any backend from outside: its batches and its calls of observe() mark the steps.
"""

import contextlib
import itertools
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat

import numpy as np

from common.tracing import chrome
from common.trainer import Batch, Batches, Trainer

if TYPE_CHECKING:
    from torch.profiler import ProfilerAction, profile

# A protocol buffer, whose class exists at run time alone.
XSpace = Any

WAIT, WARMUP, ACTIVE = 1, 2, 5
NUM_CLOCK_SAMPLES = 10
NUM_ROWS = 60
# The name of a step in PyTorch's profiler, followed by its number, and here in TensorFlow's too.
STEP = "ProfilerStep#"
# Gloo's thread reports a collective's end to DDP first and then to PyTorch's profiler. A profiler that has stopped by then has freed memory
# that the thread writes to, and some runs in thousands crash. PyTorch does not show when the thread is done; it takes milliseconds at most.
LATE_SECONDS = 0.2


class Schedule(NamedTuple):
    """Numbers of steps, as in torch.profiler.schedule: without profiler, profiled and discarded, profiled and kept."""

    wait: int
    warmup: int
    active: int


def schedule_for(num_steps: int) -> Schedule:
    """Returns the schedule of an epoch: the default, or a shorter one for few steps; at least one step is kept."""
    active = max(1, min(ACTIVE, num_steps - 2))
    wait = min(WAIT, num_steps - active)
    return Schedule(wait, min(WARMUP, num_steps - active - wait), active)


def profile_epoch(folder: Path, trainer: Trainer, batches: Batches) -> None:
    """Trains one epoch under the framework's profiler; called by every rank. Writes into the folder after the epoch:

    spans.RANK.json.gz, the spans of steps and of waits for data; torch.RANK.json.gz or tensorflow.RANK.json.gz, the framework's trace;
    torch.RANK.txt, time and memory of each operator. Without a profiler there are the spans alone.
    """
    rank, schedule = trainer.ranks.rank, schedule_for(len(batches))
    framework = next(name for name in PROFILERS if name in sys.modules)
    meetings = [_meeting(trainer) for _ in range(NUM_CLOCK_SAMPLES)]
    spans = _Spans(batches)
    profiler = PROFILERS[framework] if trainer.can_be_profiled else _none
    with profiler(folder, rank, schedule) as step_profiler:
        spans.begin_step()

        def observe(loss: SupportsFloat) -> None:
            # Waits for computation that is still queued, which belongs to this step.
            float(loss)
            spans.end_step()
            step_profiler()
            spans.begin_step()

        trainer.train_epoch(spans, observe)
    about = {"rank": rank, "host": socket.gethostname(), "meetings": meetings, "schedule": schedule._asdict(), "framework": framework}
    chrome.write(folder / f"spans.{rank}.json.gz", spans.events, metadata={"origin_nanoseconds": spans.origin} | about)


def _meeting(trainer: Trainer) -> tuple[int, int]:
    """Returns when this rank entered and left a collective, in nanoseconds since the epoch; clock offsets follow from it (sources.py)."""
    entered = time.time_ns()
    trainer.sum(np.zeros(1))
    return entered, time.time_ns()


class _Spans:
    """The batches of an epoch, and the spans of its steps and of the wait for each batch.

    Times are in microseconds since `origin`, which is in nanoseconds since the epoch.
    """

    def __init__(self, batches: Batches) -> None:
        self.batches, self.events, self.num_steps = batches, [], 0
        self.origin = self.begun = time.time_ns()

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        batches = iter(self.batches)
        while True:
            start = time.time_ns()
            batch = next(batches, None)
            if batch is None:
                return
            self._add("data", start)
            yield batch

    def begin_step(self) -> None:
        """Begins the next step. The profiler's own work between two steps belongs to neither."""
        self.begun = time.time_ns()

    def end_step(self) -> None:
        self._add("step", self.begun)
        self.num_steps += 1

    def _add(self, name: str, start: int) -> None:
        times = {"ts": (start - self.origin) / 1e3, "dur": (time.time_ns() - start) / 1e3}
        self.events.append({"ph": "X", "name": name, "pid": 0, "tid": 0, **times, "args": {"step": self.num_steps}})


@contextlib.contextmanager
def _torch(folder: Path, rank: int, schedule: Schedule) -> Iterator[Callable[[], None]]:
    """Runs PyTorch's profiler, which writes operators with shapes and memory, as a table and as a Chrome trace."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    def keep(profiler: "profile") -> None:
        profiler.export_chrome_trace(str(folder / f"torch.{rank}.json.gz"))
        by = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        (folder / f"torch.{rank}.txt").write_text(profiler.key_averages().table(sort_by=by, row_limit=NUM_ROWS) + "\n")

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    action_of = torch.profiler.schedule(**schedule._asdict(), repeat=1)

    def action(step: int) -> "ProfilerAction":
        # The profiler calls this after the end of a step in the trace, and stops by what it returns.
        if step == sum(schedule):
            time.sleep(LATE_SECONDS)
        return action_of(step)

    with profile(activities=activities, schedule=action, on_trace_ready=keep, record_shapes=True, profile_memory=True) as profiler:
        yield profiler.step


@contextlib.contextmanager
def _tensorflow(folder: Path, rank: int, schedule: Schedule) -> Iterator[Callable[[], None]]:
    """Runs TensorFlow's profiler for the kept steps, and converts its trace to Chrome's format.

    The trace is an XSpace, a protocol buffer that the tensorflow package can read.
    """
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    def profiled_steps() -> Generator[None]:
        first, end = schedule.wait + schedule.warmup, sum(schedule)
        yield from itertools.repeat(None, first)
        tf.profiler.experimental.start(raw)
        try:
            for number in range(first, end):
                with tf.profiler.experimental.Trace(f"{STEP}{number}"):
                    yield
        finally:
            tf.profiler.experimental.stop()
        yield from itertools.repeat(None)

    with tempfile.TemporaryDirectory(dir=folder) as raw:
        with contextlib.closing(profiled_steps()) as steps:
            next(steps)
            yield lambda: next(steps)
        for path in Path(raw).rglob("*.xplane.pb"):
            space: XSpace = xplane_pb2.XSpace()  # pyright: ignore[reportAttributeAccessIssue]: the class exists at run time alone
            space.ParseFromString(path.read_bytes())
            metadata = {"origin_nanoseconds": _start_nanoseconds(space), "host": next(iter(space.hostnames), None)}
            chrome.write(folder / f"tensorflow.{rank}.json.gz", _events(space), metadata=metadata)


@contextlib.contextmanager
def _none(folder: Path, rank: int, schedule: Schedule) -> Iterator[Callable[[], None]]:
    """Profiles nothing."""
    yield lambda: None


def _start_nanoseconds(space: XSpace) -> int:
    """Returns the epoch time of an XSpace's time 0: the stat `profile_start_time`; 0 where its times are epoch times."""
    for plane in space.planes:
        for stat in plane.stats:
            if plane.stat_metadata[stat.metadata_id].name == "profile_start_time":
                return stat.uint64_value or stat.int64_value
    return 0


def _events(space: XSpace) -> Iterator[chrome.Event]:
    """Yields the spans of an XSpace as X events, in microseconds since its start. Its devices become processes, its lines threads."""
    for pid, plane in enumerate(space.planes):
        for tid, line in enumerate(plane.lines):
            track = {"pid": pid, "tid": tid}
            yield {"ph": "M", "name": "thread_name", **track, "args": {"name": line.display_name or line.name}}
            for event in line.events:
                if event.duration_ps:
                    metadata = plane.event_metadata[event.metadata_id]
                    start = line.timestamp_ns / 1e3 + event.offset_ps / 1e6
                    times = {"ts": start, "dur": event.duration_ps / 1e6}
                    yield {"ph": "X", "name": metadata.display_name or metadata.name, **times, **track}


# By the framework that a process has imported.
PROFILERS = {"torch": _torch, "tensorflow": _tensorflow}
