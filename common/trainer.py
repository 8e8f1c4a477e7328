"""The interface between the training loop and a backend."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, final

import numpy as np

from common.config import Settings
from common.ranks.gpus import Device
from common.ranks.launcher_variables import Ranks
from common.record.parts import TensorBytesByRank, Transport


class Batch(NamedTuple):
    """One rank's shard of a global batch: arrays with samples along the first axis, and the learning rate of the step.

    A user's file may have nested tensors in their place.

    `weights` has one weight per loss. `targets` are integers in the shape of `weights`, or probabilities along one more, last axis.
    """

    inputs: Any
    targets: Any
    weights: np.ndarray
    learning_rate: float = 0.0


class MicroBatches(list[Any]):
    """The inputs, targets or weights of a batch, by micro-batch, where a file collates samples itself: what it returns cannot be cut."""


# Takes the weighted loss of this rank after each step, a scalar of any framework, or NO_LOSS.
Observe = Callable[[Any], object]
# The loss of a rank in a step in which it trains nothing.
NO_LOSS = float("-inf")


class Batches(Protocol):
    """The batches of one epoch or one evaluation."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Batch]: ...


class Totals(NamedTuple):
    """Evaluation sums of one rank over the losses of its held-out samples, without padding.

    `sums` are those of the metric of a user's file with finish().
    """

    loss: float
    num_correct: float
    num_losses: float
    sums: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Sequence[float]) -> Totals:
        """Returns the totals in a row of numbers, as they are added up."""
        loss, num_correct, num_losses, *sums = values
        return cls(loss, num_correct, num_losses, tuple(sums))

    @property
    def values(self) -> list[float]:
        return [*self[:3], *self.sums]


class ProfiledCommunication(NamedTuple):
    """Communication of some training steps as profiled by the library.

    A collective ran for `seconds`, overlapped with computation or not; they are NaN on a rank without a profile. `operations` has the calls
    of each collective, and the bytes that a rank contributes to it, or that a broadcast sends.
    """

    seconds: float
    operations: dict[str, tuple[int, int]]


class Communication(NamedTuple):
    """The functions by which common/training/step_breakdown.py measures the communication of a backend. All ranks make the same calls.

    `without_communication()` is a context in which train_epoch does only what a rank would do alone. The ranks' parameters differ
    afterwards, unless the learning rate is 0. `profiled(train)` profiles the steps that train() runs.
    """

    without_communication: Callable[[], AbstractContextManager[None]]
    profiled: Callable[[Callable[[], None]], ProfiledCommunication]


class TensorBytes(NamedTuple):
    """Bytes of the tensors that a rank holds, without activations and what a library keeps to itself, such as its buckets."""

    parameters: int
    gradients: int
    optimizer_state: int


# The points of a step at which the bytes of its tensors are counted.
POINTS = tuple(field.name for field in dataclasses.fields(TensorBytesByRank))


class Schedule(NamedTuple):
    """Numbers of steps, as in torch.profiler.schedule: without profiler, profiled and discarded, profiled and kept."""

    wait: int
    warmup: int
    active: int


class Trainer(ABC):
    """A backend, driven by common/training/loop.py. Its methods, and those of a framework's Trainer, are abstract or final.

    Its `transport`, `configuration` and `staleness` are for the record (common/record/definition.py).
    """

    ranks: Ranks
    # What the gradients go over, if they go anywhere.
    transport: Transport | None = None
    # The configuration of the library, if it has one.
    configuration: dict[str, Any] | None = None
    # Where ranks train asynchronously: the counts of each epoch since `restore`.
    staleness: list[dict[str, int]] | None = None
    # Counts the steps that the library has left out without a word, since a gradient was not finite.
    num_skipped_steps: Callable[[], int] = staticmethod(lambda: 0)
    # Functions that say why the framework or the library cannot train on `cpu` or `cuda`; None if it can.
    device_problems: ClassVar[tuple[Callable[[str], str | None], ...]]
    # Says why a run cannot have --mkl-kernels fast on this node; None if it can, or if that has no effect.
    mkl_kernels_problem: ClassVar[Callable[[], str | None]] = staticmethod(lambda: None)

    @abstractmethod
    def __init__(self, settings: Settings) -> None: ...

    @final
    @classmethod
    def device_problem(cls, device: str) -> str | None:
        """Returns why the backend cannot train on `cpu` or `cuda` on this node; None if it can."""
        return next(filter(None, (problem(device) for problem in cls.device_problems)), None)

    @abstractmethod
    def describe_device(self) -> Device:
        """Describes the device of this rank."""

    @abstractmethod
    def profiled(self, folder: Path, schedule: Schedule) -> AbstractContextManager[Callable[[], None]]:
        """Runs the framework's profiler, if one is used, in a context, which gives the function to call after each step.

        It writes into a folder.
        """

    @abstractmethod
    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        """Trains one epoch; calls observe(loss) after each step.

        With --accumulate each batch is cut into that many micro-batches of equal size, one after the other. Their losses and gradients
        add up, since the weights are those of the global batch; gradients are exchanged after the last.
        """

    @abstractmethod
    def evaluate(self, batches: Batches) -> Totals:
        """Returns this rank's totals over the batches."""

    @abstractmethod
    def sum(self, values: np.ndarray) -> np.ndarray:
        """Sum-all-reduces float64 values with the backend's own collective."""

    @abstractmethod
    def state(self, with_optimizer_state: bool = True) -> dict[str, np.ndarray]:
        """Returns unsharded parameters, this rank's buffers and, optionally, optimizer state, in the names and layouts of weights.py."""

    @abstractmethod
    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Loads a state; optimizer state that it lacks is set to 0, and buffers that it lacks stay as they are."""

    @abstractmethod
    def memory(self) -> AbstractContextManager[Mapping[str, TensorBytes]]:
        """Returns a context in which train_epoch notes what this rank holds at each of the POINTS of its last step and micro-batch."""

    @abstractmethod
    def communication(self) -> Communication | None:
        """Returns the functions that measure this backend's communication; None if it has none."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the process group; the last call."""


class OneProcess(Trainer):
    """A backend of one process, which does not communicate."""

    @final
    def sum(self, values: np.ndarray) -> np.ndarray:
        return values

    @final
    def communication(self) -> None:
        return None

    @final
    def close(self) -> None:
        pass
