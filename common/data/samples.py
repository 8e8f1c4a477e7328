"""The samples of a dataset as the training loop reads them, from memory or from disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from common.data.sharding import Streamed

if TYPE_CHECKING:
    from common.data.storage_use import Use
    from common.data.stored import Storage


class Samples(Protocol):
    """Samples with their targets."""

    @property
    def num_losses(self) -> np.ndarray:
        """The number of targets of each sample that count."""
        ...

    @property
    def streamed(self) -> Streamed | None:
        """How samples are shuffled that can be read in order only; None for others."""
        ...

    @property
    def storage(self) -> Storage | None:
        """The converted data set that has the samples; None for samples in memory."""
        ...

    @property
    def use(self) -> Use | None:
        """The cost of reading the samples from the storage; None for samples in memory."""
        ...

    def __len__(self) -> int: ...

    def batches(self, indices: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the inputs and targets of the samples of each row of the indices, one row after the other."""
        ...


@dataclass(frozen=True)
class InMemory:
    """Samples along the first axis of arrays. A target is an integer, ignored if negative, or a vector of probabilities, the last axis."""

    inputs: np.ndarray
    targets: np.ndarray
    streamed = None
    storage = None
    use = None

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def num_losses(self) -> np.ndarray:
        return count_losses(self.targets)

    def batches(self, indices: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return ((self.inputs[row], self.targets[row]) for row in indices)


class Dataset(NamedTuple):
    """Training and held-out samples, and a digest of their values and their split. A dataset for throughput only has no held-out samples.

    Data on disk has the digest of the same data in memory. The digest of a format that is read in order depends on that order too.
    """

    train: Samples
    test: Samples
    digest: str


def counted(targets: np.ndarray) -> np.ndarray:
    """Returns whether each target counts, booleans of shape (samples, …), one for each loss."""
    return targets >= 0 if np.issubdtype(targets.dtype, np.integer) else np.ones(targets.shape[:-1], bool)


def count_losses(targets: np.ndarray) -> np.ndarray:
    """Returns the number of targets of each sample that count."""
    counts = counted(targets)
    return counts.reshape(len(counts), -1).sum(axis=1)
