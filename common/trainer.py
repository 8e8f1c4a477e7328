"""The seam: what a backend provides, and what passes through it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
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


class Observed(NamedTuple):
    """What a library tells of its communication while some steps were trained.

    `seconds` in which a collective ran, hidden behind computation or not, NaN on a rank that is not told; `operations`:
    {collective: (calls, bytes that a rank gave into them)}; `details` in the library's own words.
    """

    seconds: float
    operations: dict[str, tuple[int, int]]
    details: dict


class Communication(NamedTuple):
    """What common/account.py measures a backend's communication with, when training is over; all ranks do the same.

    Within `alone()` train_epoch exchanges nothing between ranks, whose parameters differ from then on.
    `observed(train)` tells of the steps that train() trains. `all_reduce(num_bytes)` gives a function that
    all-reduces a buffer of that size and returns when that is done.
    """

    alone: Callable[[], AbstractContextManager]
    observed: Callable[[Callable[[], None]], Observed]
    all_reduce: Callable[[int], Callable[[], object]]


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

    def communication(self) -> Communication | None:
        """What its communication is measured with; None where it has none."""

    def close(self) -> None:
        """Leaves the process group. Called once, after everything else."""


def by_rank(trainer, value):
    """The value of every rank, by rank; every rank gets the array. All ranks call this."""
    values = np.zeros(trainer.ranks.size)
    values[trainer.ranks.rank] = value
    return trainer.sum(values)
