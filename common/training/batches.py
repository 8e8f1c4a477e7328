"""The batches of a training, made from samples on demand, and those of its warm-up."""

import dataclasses
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from common import workloads
from common.config import Settings
from common.data.own_data import OwnSamples
from common.data.samples import Samples, counted, read_ahead
from common.model import families, own_file, own_model, weights
from common.model.families import Described, Model
from common.model.own_model import OwnModel
from common.process.watchdog import Watchdog
from common.ranks import by_rank
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
        model = workloads.workload_of(self.settings).model
        batches = self._of_own_data() if isinstance(model, OwnModel) else self._of_arrays(model)
        for row, batch in zip(self.indices, batches, strict=True):
            self.taken.note(row, batch)
            yield batch

    def _of_arrays(self, model: Described) -> Iterator[Batch]:
        precision = self.settings.precision
        input_type = families.input_type(model, precision)
        of_steps = zip(self._read(self.samples, self.indices), self.sample_weights, self.learning_rates, strict=True)
        for (inputs, picked), weight, learning_rate in of_steps:
            self.watchdog.heartbeat()
            self.reading.sample_bytes += inputs.nbytes + picked.nbytes
            counts = counted(picked)
            # The sample's weight; 0 for a target that does not count.
            loss_weights = (counts * weight.reshape(-1, *[1] * (counts.ndim - 1))).astype(weights.DTYPES[precision])
            targets = picked.astype(np.int64) if np.issubdtype(picked.dtype, np.integer) else picked
            yield Batch(inputs.astype(input_type, copy=False), np.maximum(targets, 0), loss_weights, float(learning_rate))

    def _of_own_data(self) -> Iterator[Batch]:
        """Yields batches without padding, which has weight 0: a loss is a mean over all samples of a batch."""
        is_kept = self.sample_weights > 0
        # Each rank computes as many batches, also where it has no sample of one.
        is_kept[:, 0] |= ~is_kept.any(axis=1)
        rows = [row[kept] for row, kept in zip(self.indices, is_kept, strict=True)]
        samples = dataclasses.replace(cast("OwnSamples", self.samples), seeds=(self.settings.seed, self.epoch))
        of_steps = zip(self._read(samples, rows), self.sample_weights, is_kept, self.learning_rates, strict=True)
        for batch, weight, kept, learning_rate in of_steps:
            self.watchdog.heartbeat()
            yield _own_batch(batch, weight[kept], self.settings.precision, float(learning_rate))

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
            yield batch


def _own_batch(batch: tuple[Any, Any], weights_of_samples: np.ndarray, precision: str, learning_rate: float = 0.0) -> Batch:
    inputs, targets = own_file.in_precision(batch, precision)
    return Batch(inputs, targets, weights_of_samples.astype(weights.DTYPES[precision]), learning_rate)


def of_warm_up(model: Model, batch_size: int, precision: str) -> Batch:
    """Makes a batch with the shapes and types of real ones: of zeros, or, for a model of the user's own, of its first samples."""
    if isinstance(model, OwnModel):
        return _own_batch(own_model.first_batch(model, batch_size), np.full(batch_size, 1 / batch_size), precision)
    return of_zeros(model, batch_size, precision)


def of_zeros(model: Described, batch_size: int, precision: str) -> Batch:
    """Makes a batch of zeros with the shapes and types of real batches."""
    inputs = np.zeros((batch_size, *model.input_shape), families.input_type(model, precision))
    targets = np.zeros((batch_size, *model.target_shape), np.int64 if model.whole_targets else weights.DTYPES[precision])
    counts = counted(targets)
    return Batch(inputs, targets, (counts / counts.size).astype(weights.DTYPES[precision]))
