"""Parameters and optimizer state of a TensorFlow model, as arrays and restored from them."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from common.model import weights
from common.model.description import Layer
from frameworks.shared.tensorflow.optimizer import Optimizer, Parameters

# Permutation of axes from weights.py (OIHW; out, in) to TensorFlow (HWIO; in, out), by number of axes.
AXES = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}
# The layers of a model by the names of their parameters.
Layers = Mapping[str, Layer]


def gather(layers: Layers, parameters: Parameters, optimizer: Optimizer | None) -> dict[str, np.ndarray]:
    """Returns parameters and, unless `optimizer` is None, optimizer state, in the names and layouts of weights.py."""
    variables = {**parameters, **(optimizer.state if optimizer else {})}
    return {name: as_array(layers, name.rpartition("/")[2], variable.numpy()) for name, variable in variables.items()}


def restore(layers: Layers, parameters: Parameters, optimizer: Optimizer, state: Mapping[str, np.ndarray]) -> None:
    """Loads a state into the parameters and their optimizer; optimizer state that it lacks is set to 0."""
    for name, variable in {**parameters, **optimizer.state}.items():
        if name in state:
            variable.assign(as_tensor(layers, name.rpartition("/")[2], state[name], variable.dtype))
        else:
            variable.assign(tf.zeros_like(variable))


def as_array(layers: Layers, name: str, array: np.ndarray) -> np.ndarray:
    """Returns the parameter of that name, or its optimizer state, in the layout of weights.py, from TensorFlow's."""
    if _is_same_everywhere(layers, name, array):
        return array
    array = array.transpose(np.argsort(AXES[array.ndim]))
    if array.ndim > 1 and (image := layers[name].image):
        array = weights.flattened_channels_first(array, image)
    return np.ascontiguousarray(array)


def as_tensor(layers: Layers, name: str, array: np.ndarray, dtype: tf.DType | None = None) -> tf.Tensor:
    """Converts an array back to a tensor, the inverse of `as_array`; by default of the array's type."""
    if not _is_same_everywhere(layers, name, array):
        if array.ndim > 1 and (image := layers[name].image):
            array = weights.flattened_channels_last(array, image)
        array = np.ascontiguousarray(array.transpose(AXES[array.ndim]))
    return tf.convert_to_tensor(array, dtype)


def _is_same_everywhere(layers: Layers, name: str, array: np.ndarray) -> bool:
    """Returns whether a layout is that of weights.py: of numbers, such as an optimizer's count of steps, and of lookup tables."""
    return not array.ndim or layers[name].divided == "embedding"
