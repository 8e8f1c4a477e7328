"""The batches of a training, made from samples on demand; the digests of what all ranks have trained; and the batch of a warm-up."""

import functools
import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from common import workloads
from common.config import Settings
from common.data.samples import Samples, read_ahead
from common.data.sharding import Shard
from common.model import user_data
from common.model.description import Model
from common.ranks.launcher_variables import values_by_rank
from common.ranks.watchdog import Watchdog
from common.record.parts import Reading
from common.trainer import Batch, MicroBatches, Trainer

# Numbers that the ranks add up at once.
NUM_AT_ONCE = 2**20


class BatchLog:
    """The rows of indices of the batches that a trainer has asked for, in order, and the first batch. Adding takes a step no time."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []
        self.first: Batch | None = None

    def add(self, row: np.ndarray, batch: Batch) -> None:
        self.first = self.first if self.rows else batch
        self.rows.append(row)


@dataclass
class ReadingCost:
    """What the batches of a rank have cost to read so far, while it trained."""

    num_steps: int = 0
    wait_seconds: float = 0.0
    sample_bytes: int = 0

    def of_all_ranks(self, trainer: Trainer) -> Reading:
        """Gathers the costs of all ranks, which all call this."""
        wait_seconds, sample_bytes = zip(*values_by_rank(trainer, [self.wait_seconds, self.sample_bytes]), strict=True)
        return Reading(self.num_steps, list(wait_seconds), list(sample_bytes))


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
    log: BatchLog = field(default_factory=BatchLog)
    reading: ReadingCost = field(default_factory=ReadingCost)

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Batch]:
        model, precision = workloads.workload_of(self.settings).model, self.settings.precision
        samples = self.samples.seeded(self.settings.seed, self.epoch)
        num_parts = self.settings.accumulate if self.epoch and model.collates else 1
        is_used = np.ones_like(self.sample_weights, bool) if model.pads else self.sample_weights > 0
        # Each rank computes as many batches, also where it has no sample of one.
        is_used[:, 0] |= ~is_used.any(axis=1)
        rows = [row[used] for row, used in zip(self.indices, is_used, strict=True)]
        of_steps = zip(self.indices, self._read(samples, rows, num_parts), self.sample_weights, is_used, self.learning_rates, strict=True)
        for row, (inputs, targets), weight, used, learning_rate in of_steps:
            self.watchdog.heartbeat()
            batch = Batch(*model.samples(inputs, targets, weight[used], precision), float(learning_rate))
            self.log.add(row, batch)
            yield batch

    def _read(self, samples: Samples, rows: Iterable[np.ndarray], num_parts: int) -> Iterator[tuple[Any, Any]]:
        """Yields the inputs and targets of the samples of each row, which workers read ahead, and counts what they cost."""
        read_row = samples.batch if num_parts == 1 else functools.partial(_read_parts, samples, num_parts)
        read = read_ahead(read_row, rows, self.settings.num_workers)
        while True:
            begun = time.perf_counter()
            batch = next(read, None)
            self.reading.wait_seconds += time.perf_counter() - begun
            if batch is None:
                return
            self.reading.num_steps += 1
            self.reading.sample_bytes += sum(getattr(array, "nbytes", 0) for array in batch)
            yield batch


def _read_parts(samples: Samples, num_parts: int, row: np.ndarray) -> tuple[MicroBatches, MicroBatches]:
    inputs, targets = zip(*map(samples.batch, np.split(row, num_parts)), strict=True)
    return MicroBatches(inputs), MicroBatches(targets)


def of_warm_up(model: Model, batch_size: int, precision: str, accumulate: int = 1) -> Batch:
    """Makes a batch with the shapes and types of real ones, of `accumulate` micro-batches."""
    if accumulate == 1 or not model.collates:
        return Batch(*model.first_samples(batch_size, precision))
    inputs, targets, weights = model.first_samples(batch_size // accumulate, precision)
    return Batch(MicroBatches([inputs] * accumulate), MicroBatches([targets] * accumulate), np.tile(weights, accumulate) / accumulate)


def digest_of_samples(trainer: Trainer, log: BatchLog, shape: tuple[int, int], shard: Shard) -> str:
    """Returns the SHA-256 of the indices that all ranks have trained in an epoch, in the order of its global batches. All ranks call this.

    `shape` is that of a shard: (steps, samples). Where the order of the samples is the same at several numbers of ranks, so is the digest.
    """
    num_steps, num_samples = shape
    rows = np.full(shape, -1.0)
    for step, row in enumerate(log.rows[:num_steps]):
        rows[step] = row
    sha256, num_at_once = hashlib.sha256(), max(1, NUM_AT_ONCE // (shard.degree * num_samples))
    for begin in range(0, num_steps, num_at_once):
        sha256.update(_of_all_shards(trainer, rows[begin : begin + num_at_once], shard, bool(log.rows)).tobytes())
    return sha256.hexdigest()


def digest_of_data(trainer: Trainer, batch: Batch | None, shard: Shard) -> str:
    """Returns the SHA-256 of the inputs, targets and weights of all ranks in a step, shard by shard. All ranks call this."""
    sha256 = hashlib.sha256()

    def update(numbers: Any) -> None:
        array = np.asarray(numbers)
        sha256.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())

    user_data.mapped(update, batch[:3] if batch else ())
    row = np.frombuffer(sha256.digest(), np.uint32).astype(np.float64)
    return hashlib.sha256(_of_all_shards(trainer, row[None], shard, batch is not None).tobytes()).hexdigest()


def _of_all_shards(trainer: Trainer, rows: np.ndarray, shard: Shard, has_samples: bool) -> np.ndarray:
    """Returns the rows of all shards, of shape (rows, shards, numbers): -1 where no rank has any, as a server.

    Those of ranks that share a shard are equal, or their mean is none of them.
    """
    # The last number counts the ranks of a shard.
    rows_by_shard = np.zeros((len(rows), shard.degree, rows.shape[1] + 1))
    if has_samples:
        rows_by_shard[:, shard.number, :-1], rows_by_shard[:, shard.number, -1] = rows, 1
    total = trainer.sum(rows_by_shard)
    num_ranks = total[..., -1:]
    return np.where(num_ranks, total[..., :-1] / np.maximum(num_ranks, 1), -1.0)
