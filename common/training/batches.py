"""The batches of a training, made from samples on demand, and those of its warm-up."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from common import workloads
from common.config import Settings
from common.data.samples import Samples, read_ahead
from common.model.description import Model
from common.process.ranks import by_rank
from common.process.watchdog import Watchdog
from common.record.parts import Reading
from common.trainer import Batch, Trainer
from common.training.taken import Taken


@dataclass
class ReadingCost:
    """What the batches of a rank have cost to read so far, while it trained."""

    num_steps: int = 0
    wait_seconds: float = 0.0
    sample_bytes: int = 0

    def of_all_ranks(self, trainer: Trainer) -> Reading:
        """Gathers the costs of all ranks, which all call this."""
        return Reading(
            num_steps=self.num_steps,
            wait_seconds_by_rank=by_rank(trainer, self.wait_seconds).tolist(),
            sample_bytes_by_rank=by_rank(trainer, self.sample_bytes).astype(int).tolist(),
        )


@dataclass(frozen=True)
class SampleBatches:
    """The batches of an epoch or an evaluation, created on demand. Each is a heartbeat of the watchdog."""

    samples: Samples
    indices: np.ndarray
    sample_weights: np.ndarray
    learning_rates: np.ndarray
    settings: Settings
    watchdog: Watchdog
    # From 1; 0 for an evaluation.
    epoch: int = 0
    # What has been asked for.
    taken: Taken = field(default_factory=Taken)
    reading: ReadingCost = field(default_factory=ReadingCost)

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Batch]:
        model, precision = workloads.workload_of(self.settings).model, self.settings.precision
        samples = self.samples.seeded(self.settings.seed, self.epoch)
        is_kept = np.ones_like(self.sample_weights, bool) if model.pads else self.sample_weights > 0
        # Each rank computes as many batches, also where it has no sample of one.
        is_kept[:, 0] |= ~is_kept.any(axis=1)
        rows = [row[kept] for row, kept in zip(self.indices, is_kept, strict=True)]
        of_steps = zip(self.indices, self._read(samples, rows), self.sample_weights, is_kept, self.learning_rates, strict=True)
        for row, (inputs, targets), weight, kept, learning_rate in of_steps:
            self.watchdog.heartbeat()
            batch = Batch(*model.samples(inputs, targets, weight[kept], precision), float(learning_rate))
            self.taken.note(row, batch)
            yield batch

    def _read(self, samples: Samples, rows: Iterable[np.ndarray]) -> Iterator[tuple[Any, Any]]:
        """Yields the inputs and targets of the samples of each row, which workers read ahead, and counts what they cost."""
        read = read_ahead(samples.batch, rows, self.settings.num_workers)
        while True:
            begun = time.perf_counter()
            batch = next(read, None)
            self.reading.wait_seconds += time.perf_counter() - begun
            if batch is None:
                return
            self.reading.num_steps += 1
            self.reading.sample_bytes += sum(getattr(part, "nbytes", 0) for part in batch)
            yield batch


def of_warm_up(model: Model, batch_size: int, precision: str) -> Batch:
    """Makes a batch with the shapes and types of real ones."""
    return Batch(*model.first_samples(batch_size, precision))
