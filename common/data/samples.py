"""The samples of a dataset as the training loop reads them, from memory or from disk."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from common.data.sharding import Streamed


class Samples(Protocol):
    """Samples with their targets.

    `num_losses`: the number of targets of each sample that count. `streamed`: how they are shuffled where they can be read in order only;
    else None. `storage`: where they lie; None in memory.
    """

    num_losses: np.ndarray
    streamed: Streamed | None
    storage: object

    def __len__(self) -> int: ...

    def batches(self, indices: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields (inputs, targets) of the samples of each row of the indices, one row after the other."""


@dataclass(frozen=True)
class InMemory:
    """Samples along the first axis of arrays. A target is an integer, ignored if negative, or a vector of probabilities, the last axis."""

    inputs: np.ndarray
    targets: np.ndarray
    streamed = None
    storage = None

    def __len__(self):
        return len(self.inputs)

    @property
    def num_losses(self):
        return count_losses(self.targets)

    def batches(self, indices):
        return ((self.inputs[row], self.targets[row]) for row in indices)


class Dataset(NamedTuple):
    """Training and held-out samples, of which there are none in a dataset for throughput only, and a digest of values and split.

    On disk the digest is that of the same data in memory; of formats in order, that of their order too.
    """

    train: Samples
    test: Samples
    digest: str


def counted(targets):
    """Tells whether each target counts: booleans, one per loss, of shape (samples, …)."""
    return targets >= 0 if np.issubdtype(targets.dtype, np.integer) else np.ones(targets.shape[:-1], bool)


def count_losses(targets):
    """Returns the number of targets of each sample that count."""
    counts = counted(targets)
    return counts.reshape(len(counts), -1).sum(axis=1)
