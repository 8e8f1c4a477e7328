"""A profiled training epoch: the framework's profiler, and the spans of each step and of each wait for data.

Works for any backend from outside: its batches and its calls of observe() mark the steps.
"""

import contextlib
import functools
import gzip
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common import durable
from common.tracing import chrome, xplane

WAIT, WARMUP, ACTIVE = 1, 2, 5
NUM_CLOCK_SAMPLES = 10
NUM_ROWS = 60


class Schedule(NamedTuple):
    """Numbers of steps, as in torch.profiler.schedule: without profiler, profiled and discarded, profiled and kept."""

    wait: int
    warmup: int
    active: int


def schedule_for(num_steps):
    """Returns the Schedule of an epoch: the default, or a shorter one for few steps; at least one step is kept."""
    active = max(1, min(ACTIVE, num_steps - 2))
    wait = min(WAIT, num_steps - active)
    return Schedule(wait, min(WARMUP, num_steps - active - wait), active)


class StepHooks(NamedTuple):
    """The hooks of a profiled epoch: `batches` wraps the epoch's batches, `step` is called after each step."""

    batches: Callable
    step: Callable[[], None]


def framework_of(modules=sys.modules):
    """Returns the framework of this process: torch or tensorflow, whichever is imported; None where neither is."""
    return next((name for name in ("torch", "tensorflow") if name in modules), None)


def profile_epoch(folder, trainer, batches):
    """Trains one epoch of a trainer under its framework's profiler, see `profiled`; called by every rank."""
    collective = functools.partial(trainer.sum, np.zeros(1))
    with profiled(folder, trainer.ranks.rank, len(batches), collective, framework_of()) as hooks:

        def observe(loss):
            # Waits for computation that is still queued, which belongs to this step.
            float(loss)
            hooks.step()

        trainer.train_epoch(hooks.batches(batches), observe)


@contextlib.contextmanager
def profiled(folder, rank, num_steps, collective, framework):
    """Profiles a training epoch of num_steps, gives StepHooks, and writes into the folder after the epoch:

    spans.RANK.json.gz, the spans of steps and of waits for data; torch.RANK.json.gz or tensorflow.RANK.json.gz, the framework's trace;
    torch.RANK.txt, time and memory of each operator. `collective` must return on no rank before all ranks have called it, such as
    `lambda: trainer.sum(np.zeros(1))`: clock offsets are measured with it. `framework`: torch, tensorflow, or None for the steps alone;
    see framework_of().
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    profilers = {"torch": _torch, "tensorflow": _tensorflow}
    schedule = schedule_for(num_steps)
    spans = Spans()
    meetings = [_timed(collective) for _ in range(NUM_CLOCK_SAMPLES)]
    with profilers[framework](folder, rank, schedule) if framework else contextlib.nullcontext(lambda: None) as step_profiler:
        spans.begin_step()

        def step():
            spans.end_step()
            step_profiler()
            spans.begin_step()

        yield StepHooks(lambda batches: _TimedBatches(batches, spans), step)
    about = {"rank": rank, "host": socket.gethostname(), "meetings": meetings, "schedule": schedule._asdict(), "framework": framework}
    chrome.write(folder / f"spans.{rank}.json.gz", spans.events, {"origin_nanoseconds": spans.origin} | about)


def _timed(collective):
    """Returns (entered, left) of a collective, in nanoseconds since the epoch."""
    entered = time.time_ns()
    collective()
    return entered, time.time_ns()


class Spans:
    """The spans of steps and of waits for data; microseconds since `origin`, which is in nanoseconds since the epoch."""

    def __init__(self):
        self.events = []
        self.num_steps = 0
        self.origin = self.begun = time.time_ns()

    def add(self, name, start):
        times = {"ts": (start - self.origin) / 1e3, "dur": (time.time_ns() - start) / 1e3}
        self.events.append({"ph": "X", "name": name, "pid": 0, "tid": 0, **times, "args": {"step": self.num_steps}})

    def end_step(self):
        self.add("step", self.begun)
        self.num_steps += 1

    def begin_step(self):
        """Begins the next step. The profiler's own work between two steps belongs to neither."""
        self.begun = time.time_ns()


@dataclass(frozen=True)
class _TimedBatches:
    """The batches of an epoch; the wait for each is recorded as a span."""

    batches: object
    spans: Spans

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        batches = iter(self.batches)
        while True:
            start = time.time_ns()
            batch = next(batches, None)
            if batch is None:
                return
            self.spans.add("data", start)
            yield batch


@contextlib.contextmanager
def _torch(folder, rank, schedule):
    """Runs PyTorch's profiler, which writes operators with shapes and memory, as a table and as a Chrome trace."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    def keep(profiler):
        path = folder / f"torch.{rank}.json"
        profiler.export_chrome_trace(str(path))
        with (
            durable.replacing(folder / f"{path.name}.gz") as part,
            path.open("rb") as plain,
            gzip.open(part, "wb", chrome.COMPRESSION_LEVEL) as zipped,
        ):
            shutil.copyfileobj(plain, zipped)
        path.unlink()
        by = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        (folder / f"torch.{rank}.txt").write_text(profiler.key_averages().table(sort_by=by, row_limit=NUM_ROWS) + "\n")

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    steps = torch.profiler.schedule(**schedule._asdict(), repeat=1)
    with profile(activities=activities, schedule=steps, on_trace_ready=keep, record_shapes=True, profile_memory=True) as profiler:
        yield profiler.step


@contextlib.contextmanager
def _tensorflow(folder, rank, schedule):
    """Runs TensorFlow's profiler for the kept steps, and converts its trace to Chrome's format."""
    import tensorflow as tf

    first, end = schedule.wait + schedule.warmup, sum(schedule)
    done, trace = 0, None
    with tempfile.TemporaryDirectory(dir=folder) as raw, contextlib.ExitStack() as running:

        def begin():
            nonlocal trace
            if done == first:
                tf.profiler.experimental.start(raw)
                running.callback(tf.profiler.experimental.stop)
            if first <= done < end:
                trace = tf.profiler.experimental.Trace(f"{xplane.STEP}{done}")
                trace.__enter__()

        def step():
            nonlocal done, trace
            if trace:
                trace = trace.__exit__(None, None, None)
            done += 1
            if done == end:
                running.close()
            begin()

        begin()
        yield step
        running.close()
        for path in Path(raw).rglob("*.xplane.pb"):
            xplane.convert(path, folder / f"tensorflow.{rank}.json.gz")
