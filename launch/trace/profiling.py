"""The profiled steps of a run: its framework's profiler around a training epoch, and when each step and its data were there.

For any backend, from outside: what it is given as batches and as observe() tells where a step begins and ends.
"""

import contextlib
import functools
import gzip
import os
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

from launch.trace import chrome, xplane

WAIT, WARMUP, ACTIVE = 1, 2, 5
NUM_MEETINGS = 10
NUM_ROWS = 60


class Schedule(NamedTuple):
    """Steps that are left alone, steps in which the profiler runs and is not believed, and steps that are kept."""

    wait: int
    warmup: int
    active: int


def schedule_for(num_steps):
    """The Schedule of an epoch: the usual one, or what fits into few steps; at least one step is kept."""
    active = max(1, min(ACTIVE, num_steps - 2))
    wait = min(WAIT, num_steps - active)
    return Schedule(wait, min(WARMUP, num_steps - active - wait), active)


class Watch(NamedTuple):
    """What the loop uses of a profiled epoch: `batches` goes around the epoch's batches, `step` is called once a step."""

    batches: Callable
    step: Callable[[], None]


def framework_of(modules=sys.modules):
    """Whose profiler belongs to this process: torch or tensorflow, whichever is imported; None where neither is."""
    return next((name for name in ("torch", "tensorflow") if name in modules), None)


def profile_epoch(folder, trainer, batches):
    """Trains one epoch of a trainer under its framework's profiler, as `profiled` says; every rank calls this."""
    meet = functools.partial(trainer.sum, np.zeros(1))
    with profiled(folder, trainer.ranks.rank, len(batches), meet, framework_of()) as watch:

        def observe(loss):
            # What is still being computed belongs to this step.
            float(loss)
            watch.step()

        trainer.train_epoch(watch.batches(batches), observe)


@contextlib.contextmanager
def profiled(folder, rank, num_steps, meet, framework):
    """Profiles a training epoch of num_steps and gives a Watch; what was seen is written into the folder when the epoch has ended.

    spans.RANK.json.gz: when each step, and the wait for its data, began and ended; the framework's trace, torch.RANK.json.gz
    or tensorflow.RANK.json.gz; torch.RANK.txt: time and memory of each operator. `meet` is any collective that returns on
    no rank before all ranks have called it, such as `lambda: trainer.sum(np.zeros(1))`: it tells how far clocks are apart.
    `framework` is torch, tensorflow, or None for the steps alone; framework_of() finds it.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    profilers = {"torch": _torch, "tensorflow": _tensorflow}
    schedule = schedule_for(num_steps)
    spans = Spans()
    meetings = [_met(meet) for _ in range(NUM_MEETINGS)]
    with profilers[framework](folder, rank, schedule) if framework else contextlib.nullcontext(lambda: None) as step_profiler:
        spans.begin_step()

        def step():
            spans.end_step()
            step_profiler()
            spans.begin_step()

        yield Watch(lambda batches: _Watched(batches, spans), step)
    about = {"rank": rank, "host": socket.gethostname(), "meetings": meetings, "schedule": schedule._asdict(), "framework": framework}
    chrome.write(folder / f"spans.{rank}.json.gz", spans.events, {"origin_nanoseconds": spans.origin} | about)


def _met(meet):
    """When a collective was entered and left, as nanoseconds since the epoch."""
    entered = time.time_ns()
    meet()
    return entered, time.time_ns()


class Spans:
    """When each step and each wait for its data began and ended; microseconds since the origin, nanoseconds since the epoch."""

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
        """Begins the next step: what the profiler does between two steps belongs to neither."""
        self.begun = time.time_ns()


@dataclass(frozen=True)
class _Watched:
    """The batches of an epoch, and how long each was waited for."""

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
    """PyTorch's profiler: operators with their shapes and memory, as a table and as Chrome's trace."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    def keep(profiler):
        path = folder / f"torch.{rank}.json"
        profiler.export_chrome_trace(str(path))
        with open(path, "rb") as plain, gzip.open(f"{path}.gz.tmp", "wb", chrome.COMPRESSION_LEVEL) as zipped:
            shutil.copyfileobj(plain, zipped)
        os.replace(f"{path}.gz.tmp", f"{path}.gz")
        path.unlink()
        by = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        (folder / f"torch.{rank}.txt").write_text(profiler.key_averages().table(sort_by=by, row_limit=NUM_ROWS) + "\n")

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    steps = torch.profiler.schedule(**schedule._asdict(), repeat=1)
    with profile(activities=activities, schedule=steps, on_trace_ready=keep, record_shapes=True, profile_memory=True) as profiler:
        yield profiler.step


@contextlib.contextmanager
def _tensorflow(folder, rank, schedule):
    """TensorFlow's profiler around the steps to keep, its trace converted to Chrome's format."""
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
