"""Step breakdown: compute, data wait and exposed communication of a step, measured on additional steps after training.

Communication is everything that a rank would not do alone: packing, exchange, unpacking, and waiting for other ranks. Every time is
the median of its repeats on a rank; over ranks it is the mean, as in nccl-tests by default (-a 1).
"""

import contextlib
import math
import time
from itertools import chain, islice, repeat

import numpy as np

from common import weights, workloads
from common.trainer import Communication, ProfiledCommunication, by_rank

BLOCK_SECONDS = 0.2
MIN_STEPS = 2
# Blocks with and without communication, in an order that cancels a linear drift.
COMMUNICATES = (True, False, False, True) * 2
# For warm-up and for profiling, which slows steps down.
NUM_FEW = 5
NUM_ALL_REDUCES = 10
# Bus bytes per byte that each of n ranks contributes to a collective (nccl-tests, doc/PERFORMANCE.md, which gives the size of an
# all-gather as the bytes that a rank receives).
BUS_FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: n - 1,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
}
# For a backend without communication.
NONE = Communication(contextlib.nullcontext, lambda train: ProfiledCommunication(0.0, {}, {}), lambda num_bytes: lambda: None)


def add_to_record(settings, trainer, batches, record):
    """Measures the step breakdown after training and adds it to the record (key `step_breakdown`). All ranks call this.

    The parameters stay as they are. The optimizer state differs between ranks afterwards and must not be used.
    """
    # Not the median: on CUDA, where steps are queued, the time of one is that of queueing it.
    step_seconds = by_rank(trainer, np.mean(record["step_seconds"])).mean()
    num_steps = max(MIN_STEPS, round(BLOCK_SECONDS / step_seconds))
    if trainer.ranks.rank == 0:
        seconds = (len(COMMUNICATES) * (num_steps + 1) + 2 * NUM_FEW) * step_seconds
        print(f"step breakdown: about {seconds:.0f} s of additional steps", flush=True)
    record["step_breakdown"] = measure(trainer, batches, num_steps, gradient_bytes(settings))


def gradient_bytes(settings):
    """Bytes of the gradients of all parameters, which data parallelism all-reduces once per step."""
    parameters = workloads.workload_of(settings).parameters.values()
    return sum(math.prod(one.shape) for one in parameters) * np.dtype(weights.DTYPES[settings.precision]).itemsize


def measure(trainer, batches, num_steps, plain_bytes):
    """The step breakdown as stored in a record: of blocks of `num_steps` steps, and of a plain all-reduce of `plain_bytes` bytes."""
    communication = trainer.communication() or NONE
    num_few = min(num_steps, NUM_FEW)
    with communication.without_communication():
        # Warm-up: steps without communication may have to be compiled.
        _block(trainer, batches, num_few)
    blocks = {True: [], False: []}
    for communicates in COMMUNICATES:
        with contextlib.nullcontext() if communicates else communication.without_communication():
            blocks[communicates].append(_block(trainer, batches, num_steps))
    parts = parts_of(*(np.median(blocks[communicates], axis=0) for communicates in (True, False)))
    profile = communication.profiled(lambda: trainer.train_epoch(First(batches, num_few), float))
    seconds = by_rank(trainer, profile.seconds / num_few).tolist()
    num_ranks = trainer.ranks.size
    plain = {"all_reduce": (1, plain_bytes)}
    return {
        "num_steps": num_steps,
        **{name: by_rank(trainer, value).tolist() for name, value in parts.items()},
        "communication_seconds": seconds,
        "operations": {
            name: {"num_calls": num_calls / num_few, "num_bytes": num_bytes / num_few}
            for name, (num_calls, num_bytes) in profile.operations.items()
        },
        "bus_bytes_per_second": bandwidth(profile.operations, np.nanmean(seconds) * num_few, num_ranks),
        "plain_bus_bytes_per_second": bandwidth(
            plain, by_rank(trainer, _seconds(trainer, communication.all_reduce(plain_bytes))).mean(), num_ranks
        ),
        "library": profile.details,
    }


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


def bus_bytes(name, num_bytes, num_ranks):
    """Bytes that a rank sends in a collective to which it contributes `num_bytes`; all of them in one without a bus factor."""
    return BUS_FACTORS.get(name, lambda n: 1)(num_ranks) * num_bytes


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
