"""What every vendor's loop has in common with ours, so that only the loops differ: settings, cores, data and the stopwatch."""

import os
import time
from typing import NamedTuple

import numpy as np

from common import command_line, workloads
from common.config import Settings
from common.data import datasets, sharding
from common.process import allocator, binding
from common.process.ending import leave
from common.process.ranks import Ranks, from_environment


class Work(NamedTuple):
    """What a rank's loop trains, in `steps` batches of all ranks an epoch: inputs (samples, 28, 28) and targets, which fill them."""

    ranks: Ranks
    settings: Settings
    steps: int
    inputs: np.ndarray
    targets: np.ndarray

    @property
    def learning_rate(self):
        return self.settings.learning_rate * self.settings.learning_rate_factor


def main(train):
    """Runs a vendor's loop, train(work), as a program; to be called when the libraries are imported, as ours does."""
    ranks = from_environment()
    settings = workloads.resolve(command_line.parse(Settings, "vendor's loop", ""), ranks.size)
    # The cores that ours would have.
    binding.bind(binding.cores_for(os.sched_getaffinity(0), ranks.local_rank, settings.threads, binding.core_of_threads()))
    if settings.allocator == "keep":
        allocator.keep_large_buffers()
    data = datasets.loader(settings)()
    batch = workloads.global_batch(settings, ranks.size)
    steps = sharding.num_steps(len(data.train.inputs), batch, settings.last_batch)
    # Ours leaves out what does not fill a batch.
    train(Work(ranks, settings, steps, data.train.inputs[: steps * batch], data.train.targets[: steps * batch]))
    # To take the interpreter down around the libraries' threads would abort some runs.
    leave(0)


def measure(work, train_epoch):
    """Reports the rate of train_epoch(epoch), which returns when its steps are done, after an epoch to warm up."""
    train_epoch(0)
    begun = time.perf_counter()
    for epoch in range(work.settings.epochs):
        train_epoch(epoch + 1)
    report(work, time.perf_counter() - begun)


def report(work, seconds):
    """Prints on rank 0 the samples per second of all ranks over the epochs that took so many seconds."""
    if work.ranks.rank == 0:
        samples = work.settings.epochs * len(work.inputs)
        print(f"samples_per_second: {samples / seconds:.1f}", flush=True)
