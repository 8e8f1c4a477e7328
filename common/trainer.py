"""The seam: what a backend provides, and what passes through it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from common.ranks import Ranks


class Batch(NamedTuple):
    """One rank's shard of one global batch: arrays with the samples first, a weight for each single loss, and the step's rate.

    Targets are whole numbers, in the shape of the weights, or probabilities, along one more axis at the end.
    """

    inputs: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    learning_rate: float = 0.0


class Batches(Protocol):
    """The batches of one epoch or one evaluation."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Batch]: ...


class Totals(NamedTuple):
    """What one rank found on its share of the held-out samples: sums over single losses; padding counts 0."""

    loss: float
    num_correct: float
    count: float


class Trainer(Protocol):
    """One backend, driven by common/loop.py, which never asks which one it has.

    Where a library takes a configuration of its own, `configuration` holds it, for the record.
    """

    ranks: Ranks

    def train_epoch(self, batches: Batches, observe: Callable) -> None:
        """Trains on every batch of one epoch; calls observe(loss) once a step with this rank's weighted loss."""

    def evaluate(self, batches: Batches) -> Totals:
        """This rank's totals over the batches, without training."""

    def sum(self, values: np.ndarray) -> np.ndarray:
        """The float64 values added up over all ranks, through the backend's own collective; every rank gets the sum."""

    def state(self, with_slots: bool = True) -> dict[str, np.ndarray]:
        """Parameters and, unless not wanted, optimizer slots, whole, in the names and layouts of weights.py."""

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Takes over a state; optimizer slots that are not in it start at 0."""

    def close(self) -> None:
        """Leaves the process group. Called once, after everything else."""
