"""Where a step's time goes: computing, waiting for data, communication that nothing hides; measured on extra steps after training."""

import contextlib
import math
import time
from itertools import islice

import numpy as np

from common import weights, workloads
from common.trainer import Communication, Observed, by_rank

BLOCK_SECONDS = 0.5
MIN_STEPS = 2
# Blocks with and without communication take turns, so that drift hits both alike.
NUM_PAIRS = 3
# To compile, and for the library to tell of: the profiler's account of a step takes longer than the step.
NUM_FEW = 5
NUM_ALL_REDUCES = 10
# Bytes that cross the busiest link for each byte that a rank gives into a collective of n ranks (nccl-tests, doc/PERFORMANCE.md, where
# the size of an all-gather is what a rank gets of it).
BUS_FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: n - 1,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
}
# Of a backend that exchanges nothing.
NONE = Communication(contextlib.nullcontext, lambda train: Observed(0.0, {}, {}), lambda num_bytes: lambda: None)


def keep(settings, trainer, batches, record):
    """Puts the account of a run that has trained into its record (key `account`, see results/README.md). All ranks call this.

    Afterwards the parameters differ between ranks and are of no use.
    """
    step_seconds = by_rank(trainer, np.median(record["step_seconds"])).mean()
    num_steps = min(len(batches), max(MIN_STEPS, round(BLOCK_SECONDS / step_seconds)))
    if trainer.ranks.rank == 0:
        print(f"account: about {(2 * NUM_PAIRS * num_steps + 2 * NUM_FEW) * step_seconds:.0f} s of more steps", flush=True)
    record["account"] = measure(trainer, batches, num_steps, gradient_bytes(settings))


def gradient_bytes(settings):
    """The bytes of the gradients of all parameters, which data parallelism exchanges once a step."""
    parameters = workloads.workload_of(settings).parameters.values()
    return sum(math.prod(one.shape) for one in parameters) * np.dtype(weights.DTYPES[settings.precision]).itemsize


def measure(trainer, batches, num_steps, plain_bytes):
    """The account, as a record has it, of blocks of so many steps, and of a plain all-reduce of so many bytes."""
    communication = trainer.communication() or NONE
    num_few = min(num_steps, NUM_FEW)
    with communication.alone():
        # What is compiled for it is compiled here.
        _block(trainer, batches, num_few)
    together, alone = [], []
    for _ in range(NUM_PAIRS):
        together.append(_block(trainer, batches, num_steps))
        with communication.alone():
            alone.append(_block(trainer, batches, num_steps))
    parts = parts_of(np.median(together, axis=0) / num_steps, np.median(alone, axis=0) / num_steps)
    observed = communication.observed(lambda: trainer.train_epoch(First(batches, num_few), float))
    seconds = by_rank(trainer, observed.seconds / num_few).tolist()
    num_ranks = trainer.ranks.size
    plain = {"all_reduce": (1, plain_bytes)}
    return {
        "num_steps": num_steps,
        **{name: by_rank(trainer, value).tolist() for name, value in parts.items()},
        "communication_seconds": seconds,
        "operations": {
            name: {"num_calls": num_calls / num_few, "num_bytes": num_bytes / num_few}
            for name, (num_calls, num_bytes) in observed.operations.items()
        },
        # The rank that waited least for the others tells how long moving took.
        "bus_bytes_per_second": bandwidth(observed.operations, np.nanmin(seconds) * num_few, num_ranks),
        "plain_bus_bytes_per_second": bandwidth(plain, _seconds(trainer, communication.all_reduce(plain_bytes)), num_ranks),
        "library": observed.details,
    }


def parts_of(together, alone):
    """The parts of a step, in seconds, which add up to it: of (step, data) seconds with communication, and without."""
    (step, data), (step_alone, data_alone) = together, alone
    compute = step_alone - data_alone
    return {
        "step_seconds": step,
        "data_wait_seconds": data,
        "compute_seconds": compute,
        "communication_exposed_seconds": step - data - compute,
    }


def bandwidth(operations, seconds, num_ranks):
    """Bytes a second over the busiest link, by nccl-tests' convention; None where nothing was exchanged or no time is known.

    `operations`: {collective: (calls, bytes)} in these seconds. A collective without a factor counts with its bytes.
    """
    num_bytes = sum(BUS_FACTORS.get(name, lambda n: 1)(num_ranks) * num for name, (_, num) in operations.items())
    return num_bytes / seconds if num_bytes and seconds > 0 else None


class First:
    """The first batches of an epoch, and the seconds that they were waited for."""

    def __init__(self, batches, num):
        self.batches, self.num, self.data_seconds = batches, num, 0.0

    def __len__(self):
        return self.num

    def __iter__(self):
        batches = islice(self.batches, self.num)
        while True:
            begun = time.perf_counter()
            batch = next(batches, None)
            self.data_seconds += time.perf_counter() - begun
            if batch is None:
                return
            yield batch


def _block(trainer, batches, num_steps):
    """(seconds, seconds of waiting for data) of some steps, which all ranks begin together."""
    first, losses = First(batches, num_steps), []
    trainer.sum(np.zeros(1))
    begun = time.perf_counter()
    trainer.train_epoch(first, losses.append)
    # What a device still computes belongs to these steps.
    float(losses[-1])
    return time.perf_counter() - begun, first.data_seconds


def _seconds(trainer, all_reduce):
    """The seconds of an all-reduce with nothing around it, the least of some."""
    seconds = []
    for _ in range(NUM_ALL_REDUCES):
        trainer.sum(np.zeros(1))
        begun = time.perf_counter()
        all_reduce()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)
