"""The samples that a trainer has taken in an epoch, and the data of its first step. Their digests show that all runs train the same."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from common.data.sharding import DataParallel
from common.trainer import Batch, Trainer

# Numbers that the ranks add up at once.
NUM_AT_ONCE = 2**20


class Taken:
    """The rows of indices that a trainer has taken, in their order, and the first batch. Noting them takes a step no time."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []
        self.first: Batch | None = None

    def note(self, row: np.ndarray, batch: Batch) -> None:
        self.first = self.first if self.rows else batch
        self.rows.append(row)


def digest_of_samples(trainer: Trainer, taken: Taken, shape: tuple[int, int], place: DataParallel) -> str:
    """Returns the SHA-256 of the indices that all ranks have taken in an epoch, in the order of its global batches. All ranks call this.

    `shape` is that of a shard: (steps, samples). Where the order of the samples is the same at several numbers of ranks, so is the digest.
    """
    num_steps, num_samples = shape
    rows = np.full(shape, -1.0)
    for step, row in enumerate(taken.rows[:num_steps]):
        rows[step] = row
    sha256, num_at_once = hashlib.sha256(), max(1, NUM_AT_ONCE // (place.degree * num_samples))
    for begin in range(0, num_steps, num_at_once):
        sha256.update(_of_all_shards(trainer, rows[begin : begin + num_at_once], place, bool(taken.rows)).tobytes())
    return sha256.hexdigest()


def digest_of_data(trainer: Trainer, batch: Batch | None, place: DataParallel) -> str:
    """Returns the SHA-256 of the inputs, targets and weights of all ranks in a step, shard by shard. All ranks call this."""
    sha256 = hashlib.sha256()
    for array in map(np.asarray, _leaves(batch[:3] if batch else ())):
        sha256.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    row = np.frombuffer(sha256.digest(), np.uint32).astype(np.float64)
    return hashlib.sha256(_of_all_shards(trainer, row[None], place, batch is not None).tobytes()).hexdigest()


def _of_all_shards(trainer: Trainer, rows: np.ndarray, place: DataParallel, has_taken: bool) -> np.ndarray:
    """Returns the rows of all shards, of shape (rows, shards, numbers): -1 where no rank has taken any, as a server.

    Those of ranks that share a shard are equal, or their mean is none of them.
    """
    # The last number counts the ranks of a shard.
    rows_by_shard = np.zeros((len(rows), place.degree, rows.shape[1] + 1))
    if has_taken:
        rows_by_shard[:, place.shard, :-1], rows_by_shard[:, place.shard, -1] = rows, 1
    total = trainer.sum(rows_by_shard)
    num_ranks = total[..., -1:]
    return np.where(num_ranks, total[..., :-1] / np.maximum(num_ranks, 1), -1.0)


def _leaves(values: Any) -> Iterator[Any]:
    """Yields what is in nested tuples, lists and dictionaries, as the batches of a user's file are."""
    if isinstance(values, Mapping):
        values = tuple(values.values())
    if not isinstance(values, tuple | list):
        yield values
        return
    for value in values:
        yield from _leaves(value)
