"""What no library changes in a backend on TensorFlow: its device, and what is done with a model and its optimizer."""

import contextlib
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import final

import numpy as np
import tensorflow as tf

from common.config import Settings
from common.ranks.gpus import Device
from common.ranks.launcher_variables import from_environment
from common.trainer import POINTS, Batches, Held, Schedule, Totals, Trainer
from frameworks.shared.tensorflow import devices, states, steps
from frameworks.shared.tensorflow.models import Model
from frameworks.shared.tensorflow.optimizer import Optimizer


class TensorFlowTrainer(Trainer):
    """A backend on TensorFlow. Its __init__ calls this one and makes `module`, which has the parameters, and `optimizer`."""

    device_problems = (devices.device_problem,)
    # The version of the NCCL that the library communicates with, if it does.
    nccl: str | None = None
    module: Model
    optimizer: Optimizer

    @abstractmethod
    def __init__(self, settings: Settings) -> None:
        self.ranks = from_environment()
        self.gpu = devices.pick_device(settings, self.ranks)
        self.accumulate, self.dropout = settings.accumulate, settings.dropout

    @final
    def describe_device(self) -> Device:
        return devices.describe_device(self.gpu, self.nccl)

    @final
    def loss(self, inputs: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns the weighted loss of a micro-batch, with which every backend with a loop of its own begins its backward pass."""
        return steps.weighted_loss(self.module.forward(self.module.parameters, inputs, self.dropout), targets, weights)

    @final
    def profiled(self, folder: Path, schedule: Schedule) -> AbstractContextManager[Callable[[], None]]:
        # Imported here to keep the start of every run short.
        from frameworks.shared.tensorflow import xspace

        return xspace.profiled(folder, self.ranks.rank, schedule)

    @final
    def evaluate(self, batches: Batches) -> Totals:
        return steps.evaluate(self.module, batches)

    @final
    def state(self, with_optimizer_state: bool = True) -> dict[str, np.ndarray]:
        return states.gather(self.module.parameters, self.optimizer if with_optimizer_state else None)

    @final
    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        states.restore(self.module.parameters, self.optimizer, state)

    @final
    def memory(self) -> AbstractContextManager[Mapping[str, Held]]:
        return _bytes_at_points(self.module, self.optimizer)


class OneProcessTrainer(TensorFlowTrainer):
    """A backend of one process, which does not communicate."""

    @final
    def sum(self, values: np.ndarray) -> np.ndarray:
        return values

    @final
    def communication(self) -> None:
        return None

    @final
    def close(self) -> None:
        remove_generated_files()


def remove_generated_files() -> None:
    """Removes what AutoGraph wrote into the temporary folder, as it would itself when the interpreter is finalized."""
    for name, module in list(sys.modules.items()):
        if name.startswith("__autograph_generated_file") and module.__file__:
            Path(module.__file__).unlink(missing_ok=True)


@contextlib.contextmanager
def _bytes_at_points(model: Model, optimizer: Optimizer) -> Iterator[dict[str, Held]]:
    """Counts the bytes that are held at the points of a step, as Trainer.memory does."""
    parameters, state = _bytes_of(model.parameters.values()), _bytes_of(optimizer.state.values())
    yield {point: Held(parameters, sum(optimizer.gradient_bytes.values()) if point == "after_backward" else 0, state) for point in POINTS}


def _bytes_of(variables: Iterable[tf.Variable]) -> int:
    return sum(variable.shape.num_elements() * variable.dtype.size for variable in variables)
