"""Step breakdown: compute, data wait and exposed communication of a step, measured on additional steps after training.

Communication is everything that a rank would not do alone: packing, exchange, unpacking, and waiting for other ranks. Every time is
the median of its repeats on a rank; over ranks it is the mean, as in nccl-tests by default (-a 1).
"""

import contextlib
import itertools
import time
from collections import Counter
from itertools import chain, islice, repeat

import numpy as np

from common.cost.collectives import bus_bytes
from common.trainer import Communication, ProfiledCommunication, by_rank
from common.workloads import gradient_bytes

BLOCK_SECONDS = 0.2
MIN_STEPS = 2
# Blocks with and without communication, in an order that cancels a linear drift.
COMMUNICATES = (True, False, False, True) * 2
# For warm-up and for profiling, which slows steps down.
NUM_FEW = 5
NUM_ALL_REDUCES = 10
# Beside the gradients' size: three more sizes, from which alpha and beta can be fitted (launch/forecast/network/hockney.py).
ALL_REDUCE_SIZES = (2**10, 2**15, 2**20)
# For a backend without communication.
NONE = Communication(contextlib.nullcontext, lambda train: ProfiledCommunication(0.0, {}, {}), lambda num_bytes: lambda: None)


def add_to_record(settings, trainer, batches, record, end_turn):
    """Measures the step breakdown after training and adds it to the record (key `step_breakdown`). All ranks call this.

    `end_turn()` lets the runs beside it measure a block each before the next one.

    The parameters stay as they are. The optimizer state differs between ranks afterwards and must not be used.
    """
    # Not the median: on CUDA, where steps are queued, the time of one is that of queueing it.
    step_seconds = by_rank(trainer, np.mean(record.step_seconds)).mean()
    num_steps = max(MIN_STEPS, round(BLOCK_SECONDS / step_seconds))
    if trainer.ranks.rank == 0:
        seconds = (len(COMMUNICATES) * (num_steps + 1) + 2 * NUM_FEW) * step_seconds
        print(f"step breakdown: about {seconds:.0f} s of additional steps", flush=True)
    record.step_breakdown = measure(trainer, batches, num_steps, gradient_bytes(settings), end_turn)


def measure(trainer, batches, num_steps, plain_bytes, end_turn=lambda: None):
    """The step breakdown as stored in a record: of blocks of `num_steps` steps, and of plain all-reduces, one of `plain_bytes` bytes."""
    communication = trainer.communication() or NONE
    num_few = min(num_steps, NUM_FEW)
    with communication.without_communication():
        # Warm-up: steps without communication may have to be compiled.
        _block(trainer, batches, num_few)
    blocks = {True: [], False: []}
    for communicates in COMMUNICATES:
        end_turn()
        with contextlib.nullcontext() if communicates else communication.without_communication():
            blocks[communicates].append(_block(trainer, batches, num_steps))
    parts = parts_of(*(np.median(blocks[communicates], axis=0) for communicates in (True, False)))
    step_ends = []

    def observe(loss):
        # Waits for the device.
        float(loss)
        step_ends.append(time.time())

    profile = communication.profiled(lambda: trainer.train_epoch(First(batches, num_few), observe))
    seconds = by_rank(trainer, profile.seconds / num_few).tolist()
    num_ranks = trainer.ranks.size
    sizes = sorted({*ALL_REDUCE_SIZES, plain_bytes})
    plain = {size: float(by_rank(trainer, _seconds(trainer, communication.all_reduce(size))).mean()) for size in sizes}
    return {
        "num_steps": num_steps,
        **{name: by_rank(trainer, value).tolist() for name, value in parts.items()},
        "communication_seconds": seconds,
        "operations": {
            name: {"num_calls": num_calls / num_few, "num_bytes": num_bytes / num_few}
            for name, (num_calls, num_bytes) in profile.operations.items()
        },
        "bus_bytes_per_second": bandwidth(profile.operations, np.nanmean(seconds) * num_few, num_ranks),
        "plain_bus_bytes_per_second": bandwidth({"all_reduce": (1, plain_bytes)}, plain[plain_bytes], num_ranks),
        "all_reduce_seconds_by_size": list(map(list, plain.items())) if num_ranks > 1 else None,
        "exchange_start_seconds": starts_in_step(profile.starts or {}, step_ends) or None,
        "library": profile.details,
    }


def starts_in_step(starts, step_ends):
    """{collective: seconds from the beginning of a step to the start of each in it}: medians over the steps with the commonest number.

    `starts`: of all steps; `step_ends`: of each step, where the next one begins. The first step, whose beginning is not known, is left out,
    and so are steps without the collective.
    """
    medians = {}
    for name, times in starts.items():
        by_step = [[start - begin for start in sorted(times) if begin <= start < end] for begin, end in itertools.pairwise(step_ends)]
        # Not every step that was timed need have been profiled.
        num, _ = max(Counter(len(step_starts) for step_starts in by_step if step_starts).items(), key=lambda item: item[1], default=(0, 0))
        if num:
            medians[name] = np.median([step_starts for step_starts in by_step if len(step_starts) == num], axis=0).tolist()
    return medians


def parts_of(with_communication, without):
    """The parts of a step in seconds, which add up to it, from (step, data wait) seconds with and without communication."""
    (step, data), (step_without, data_without) = with_communication, without
    compute = step_without - data_without
    return {
        "step_seconds": step,
        "data_wait_seconds": data,
        "compute_seconds": compute,
        "communication_exposed_seconds": step - data - compute,
    }


def bandwidth(operations, seconds, num_ranks):
    """Bus bandwidth in bytes per second as defined by nccl-tests; None if no bytes were exchanged or `seconds` is 0 or NaN.

    `operations`: {collective: (calls, bytes)} within `seconds`.
    """
    num_bytes = sum(bus_bytes(name, num, num_ranks) for name, (_, num) in operations.items())
    return num_bytes / seconds if num_bytes and seconds > 0 else None


class First:
    """The first `num` batches of an epoch, or of several, with learning rate 0; `data_seconds` is the time spent waiting for them.

    At learning rate 0 the parameters stay where training left them, on all ranks alike, with and without communication.
    """

    def __init__(self, batches, num):
        self.batches, self.num, self.data_seconds = batches, num, 0.0

    def __len__(self):
        return self.num

    def __iter__(self):
        batches = islice(chain.from_iterable(repeat(self.batches)), self.num)
        while True:
            begun = time.perf_counter()
            batch = next(batches, None)
            self.data_seconds += time.perf_counter() - begun
            if batch is None:
                return
            yield batch._replace(learning_rate=0.0)


def _block(trainer, batches, num_steps):
    """(seconds, seconds of data wait) of a step, from a block that all ranks start together.

    The time of `num_steps` steps is taken after a first one, since beginning an epoch takes Keras as long as half a step. Data may
    be read ahead, so the wait for it is that of all steps.
    """
    first, losses, starts = First(batches, num_steps + 1), [], []

    def observe(loss):
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
    return working / num_steps + data_wait, data_wait


def _seconds(trainer, all_reduce):
    """The median seconds of an isolated all-reduce on this rank."""
    seconds = []
    for _ in range(NUM_ALL_REDUCES):
        trainer.sum(np.zeros(1))
        begun = time.perf_counter()
        all_reduce()
        seconds.append(time.perf_counter() - begun)
    return np.median(seconds)
