"""The CNN of the ALCF tutorials and of Horovod's and PyTorch's MNIST examples."""

from dataclasses import dataclass
from math import prod

import numpy as np

from common.model.description import BuiltIn, Part, Workload, product
from common.model.weights import he_uniform


@dataclass(frozen=True)
class Cnn(BuiltIn):
    """Two convolutions, which do not pad, a max-pooling, and two dense layers: 1,199,882 parameters."""

    input_shape: tuple[int, ...] = (28, 28)  # pyright: ignore[reportIncompatibleMethodOverride]
    target_shape: tuple[int, ...] = ()  # pyright: ignore[reportIncompatibleMethodOverride]
    whole_inputs: bool = False

    channels = 32, 64
    window, pooling = 3, 2
    hidden, num_classes = 128, 10

    @property
    def convolved_shapes(self) -> list[tuple[int, int, int]]:
        """The shapes (height, width, channels) of the results of the convolutions."""
        height, width = self.input_shape
        lost = self.window - 1
        return [(height - lost * number, width - lost * number, channels) for number, channels in enumerate(self.channels, 1)]

    @property
    def pooled_shape(self) -> tuple[int, int, int]:
        """The shape (height, width, channels) of the result of the pooling, which is the input of the first dense layer."""
        height, width, channels = self.convolved_shapes[-1]
        return height // self.pooling, width // self.pooling, channels

    def parts(self) -> list[Part]:
        """Returns the layers, a part each."""
        first, second = self.convolved_shapes
        pooled, window = prod(self.pooled_shape), (self.window, self.window)
        conv1 = product("conv1", he_uniform((first[-1], 1, *window)), prod(first[:2]), has_bias=True)
        conv2 = product("conv2", he_uniform((second[-1], first[-1], *window)), prod(second[:2]), has_bias=True)
        dense1 = product("dense1", he_uniform((self.hidden, pooled)), has_bias=True)
        dense2 = product("dense2", he_uniform((self.num_classes, self.hidden)), has_bias=True)
        shapes = first, self.pooled_shape, (self.hidden,), (self.num_classes,)
        return [Part(layer.name, (layer,), shape) for layer, shape in zip((conv1, conv2, dense1, dense2), shapes, strict=True)]


WORKLOADS = {"cnn": Workload(Cnn(), ("digits", "mnist"), 16, 90, 20, 0.94, "sgd", {"sgd": 0.004, "adam": 0.001})}

# The (height, width) of the flattened images that a layer takes. The columns of its weight are by (channels, height, width) in weights.py.
# The frameworks order them by (height, width, channels), as images lie in their memory.
FLATTENED = {"dense1.weight": Cnn().pooled_shape[:2]}


def flattened_channels_last(name: str, array: np.ndarray) -> np.ndarray:
    """Converts a weight (outputs, columns) from the order of weights.py to that of the frameworks."""
    return array.reshape(len(array), -1, *FLATTENED[name]).transpose(0, 2, 3, 1).reshape(len(array), -1)


def flattened_channels_first(name: str, array: np.ndarray) -> np.ndarray:
    """Converts a weight (outputs, columns) from the order of the frameworks to that of weights.py."""
    return array.reshape(len(array), *FLATTENED[name], -1).transpose(0, 3, 1, 2).reshape(len(array), -1)
