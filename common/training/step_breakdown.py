"""What additional steps after training show: the step breakdown, and with --timeline a profiled epoch.

The step breakdown has the compute, data wait and exposed communication of a step.

Communication is everything that a rank would not do alone: packing, exchange, unpacking, and waiting for other ranks. Every time is the
median of its repeats on a rank. Where it is of all ranks, it is their mean, as in nccl-tests by default (-a 1).
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple, SupportsFloat

import numpy as np

from common.cost.sharing import bus_bytes
from common.ranks.launcher_variables import by_rank
from common.record.definition import Record
from common.record.parts import Operation, StepBreakdown
from common.trainer import Batch, Batches, Communication, ProfiledCommunication, Schedule, Trainer

BLOCK_SECONDS = 0.2
MIN_STEPS = 2
# Blocks with and without communication, in an order that cancels a linear drift.
COMMUNICATES = (True, False, False, True) * 2
# Steps of the warm-up, and of the profile, which slows them down.
NUM_FEW = 5
# The schedule of the profiler in an epoch that has enough steps.
WAIT, WARMUP, ACTIVE = 1, 2, 5
NUM_CLOCK_SAMPLES = 10
# For a backend without communication.
NONE = Communication(contextlib.nullcontext, lambda train: ProfiledCommunication(0.0, {}))


class Block(NamedTuple):
    """The times of a step in a block of steps."""

    step_seconds: float
    data_wait_seconds: float


def add_to_record(trainer: Trainer, batches: Batches, record: Record, end_turn: Callable[[], object]) -> None:
    """Measures the step breakdown after training and adds it to the record. All ranks call this.

    `end_turn()` lets each run of the same group measure a block before this one measures the next. The parameters stay as they are. The
    optimizer state differs between ranks afterwards and must not be used.
    """
    # Not the median: on CUDA, where steps are queued, the time of a single step is that of queueing it.
    mean_step_seconds = by_rank(trainer, np.array(record.step_seconds, np.float64).mean()).mean()
    num_steps = max(MIN_STEPS, round(BLOCK_SECONDS / mean_step_seconds))
    if trainer.ranks.rank == 0:
        seconds = (len(COMMUNICATES) * (num_steps + 1) + 2 * NUM_FEW) * mean_step_seconds
        print(f"step breakdown: about {seconds:.0f} s of additional steps", flush=True)
    record.step_breakdown = measure(trainer, batches, num_steps, end_turn)


def measure(trainer: Trainer, batches: Batches, num_steps: int, end_turn: Callable[[], object] = lambda: None) -> StepBreakdown:
    """Measures blocks of `num_steps` steps. All ranks call this."""
    communication = trainer.communication() or NONE
    num_few = min(num_steps, NUM_FEW)
    with communication.without_communication():
        # Warm-up: steps without communication may have to be compiled.
        _block(trainer, batches, num_few)
    blocks: dict[bool, list[Block]] = {True: [], False: []}
    for communicates in COMMUNICATES:
        end_turn()
        with contextlib.nullcontext() if communicates else communication.without_communication():
            blocks[communicates].append(_block(trainer, batches, num_steps))
    with_communication, without_communication = (Block(*np.median(blocks[communicates], axis=0).tolist()) for communicates in (True, False))
    parts = parts_of(with_communication, without_communication)
    # Waits for the device after each step.
    profile = communication.profiled(lambda: trainer.train_epoch(First(batches, num_few), float))
    seconds = by_rank(trainer, profile.seconds / num_few).tolist()
    return StepBreakdown(
        num_steps=num_steps,
        **{name: by_rank(trainer, value).tolist() for name, value in parts.items()},
        communication_seconds=seconds,
        operations={
            name: Operation(num_calls / num_few, num_bytes / num_few) for name, (num_calls, num_bytes) in profile.operations.items()
        },
        bus_bytes_per_second=bandwidth(profile.operations, float(np.nanmean(seconds)) * num_few, trainer.ranks.size),
    )


def parts_of(with_communication: Block, without_communication: Block) -> dict[str, float]:
    """Returns the time of a step with communication, and its parts, from the times of blocks with and without it."""
    compute_seconds = without_communication.step_seconds - without_communication.data_wait_seconds
    step_seconds, data_wait_seconds = with_communication
    return {
        "step_seconds": step_seconds,
        "data_wait_seconds": data_wait_seconds,
        "compute_seconds": compute_seconds,
        "communication_exposed_seconds": step_seconds - data_wait_seconds - compute_seconds,
    }


def bandwidth(operations: Mapping[str, tuple[int, int]], seconds: float, num_ranks: int) -> float | None:
    """Returns the bus bandwidth in bytes per second as defined by nccl-tests; None if no bytes were exchanged or `seconds` is 0 or NaN.

    The operations are the calls and bytes of each collective within these seconds.
    """
    num_bytes = sum(bus_bytes(name, num, num_ranks) for name, (_, num) in operations.items())
    return num_bytes / seconds if num_bytes and seconds > 0 else None


class First:
    """The first `num_batches` batches of an epoch, or of several, with learning rate 0; `data_seconds` is the time spent waiting for them.

    At learning rate 0 the parameters stay where training left them, on all ranks alike, with and without communication.
    """

    def __init__(self, batches: Batches, num_batches: int) -> None:
        self.batches, self.num_batches, self.data_seconds = batches, num_batches, 0.0

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[Batch]:
        batches = islice(chain.from_iterable(repeat(self.batches)), self.num_batches)
        while True:
            begun = time.perf_counter()
            batch = next(batches, None)
            self.data_seconds += time.perf_counter() - begun
            if batch is None:
                return
            yield batch._replace(learning_rate=0.0)


def _block(trainer: Trainer, batches: Batches, num_steps: int) -> Block:
    """Times a block of steps that all ranks start together.

    The time of `num_steps` steps is taken after a first one, since beginning an epoch takes Keras as long as half a step. Data may
    be read ahead, so the wait for it is that of all steps.
    """
    first, losses, starts = First(batches, num_steps + 1), [], []

    def observe(loss: Any) -> None:
        losses.append(loss)
        if len(losses) == 1:
            # Waits for the device.
            float(loss)
            starts.append((time.perf_counter(), first.data_seconds))

    trainer.sum(np.zeros(1))
    trainer.train_epoch(first, observe)
    float(losses[-1])
    ((begun, waited),) = starts
    working = time.perf_counter() - begun - (first.data_seconds - waited)
    data_wait = first.data_seconds / len(first)
    return Block(working / num_steps + data_wait, data_wait)


def schedule_for(num_steps: int) -> Schedule:
    """Returns the schedule of an epoch: the default, or a shorter one for few steps; at least one step is kept."""
    active = max(1, min(ACTIVE, num_steps - 2))
    wait = min(WAIT, num_steps - active)
    return Schedule(wait, min(WARMUP, num_steps - active - wait), active)


def profile_epoch(folder: Path, trainer: Trainer, batches: Batches) -> None:
    """Trains one epoch under the framework's profiler; called by every rank. Writes into the folder after the epoch:

    spans.RANK.json.gz, the spans of steps and of waits for data; torch.RANK.json.gz, PyTorch's trace; torch.RANK.txt, time and memory of
    each operator. On TensorFlow there are the spans alone.
    """
    # Imported here, since other runs write no trace.
    from common import chrome_trace

    rank = trainer.ranks.rank
    meetings = [_meeting(trainer) for _ in range(NUM_CLOCK_SAMPLES)]
    spans = _Spans(batches)
    with trainer.profiled(folder, schedule_for(len(batches))) as step_profiler:
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
