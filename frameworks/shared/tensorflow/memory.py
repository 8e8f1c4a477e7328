"""What a rank holds in memory at the points of a training step in TensorFlow."""

import contextlib
from collections.abc import Iterable, Iterator

import tensorflow as tf

from common.trainer import POINTS, Held
from frameworks.shared.tensorflow.models import Model
from frameworks.shared.tensorflow.optimizer import Optimizer


@contextlib.contextmanager
def at_points(model: Model, optimizer: Optimizer) -> Iterator[dict[str, Held]]:
    """Counts the bytes that are held at the points of a step, as Trainer.memory does."""
    parameters, state = size_of(model.parameters.values()), size_of(optimizer.state.values())
    yield {point: Held(parameters, sum(optimizer.gradient_bytes.values()) if point == "after_backward" else 0, state) for point in POINTS}


def size_of(variables: Iterable[tf.Variable]) -> int:
    """Returns the bytes of variables."""
    return sum(variable.shape.num_elements() * variable.dtype.size for variable in variables)
