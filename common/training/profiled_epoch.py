"""A profiled training epoch: the framework's profiler, and the spans of each step and of each wait for data.

Works for any backend from outside: its batches and its calls of observe() mark the steps.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import SupportsFloat

import numpy as np

from common import chrome_trace
from common.trainer import Batch, Batches, Schedule, Trainer

WAIT, WARMUP, ACTIVE = 1, 2, 5
NUM_CLOCK_SAMPLES = 10


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
    rank = trainer.ranks.rank
    meetings = [_meeting(trainer) for _ in range(NUM_CLOCK_SAMPLES)]
    spans = _Spans(batches)
    is_profiled = trainer.can_be_profiled
    with trainer.profiled(folder, schedule_for(len(batches))) if is_profiled else contextlib.nullcontext(lambda: None) as step_profiler:
        spans.begin_step()

        def observe(loss: SupportsFloat) -> None:
            # Waits for computation that is still queued, which belongs to this step.
            float(loss)
            spans.end_step()
            step_profiler()
            spans.begin_step()

        trainer.train_epoch(spans, observe)
    metadata = {"origin_nanoseconds": spans.origin, "rank": rank, "meetings": meetings}
    chrome_trace.write(folder / f"spans.{rank}.json.gz", spans.events, metadata)


def _meeting(trainer: Trainer) -> tuple[int, int]:
    """Returns when this rank entered and left a collective, in nanoseconds since the epoch; clock offsets follow from it."""
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
