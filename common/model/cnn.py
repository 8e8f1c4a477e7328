"""The CNN of the ALCF tutorials and of Horovod's and PyTorch's MNIST examples."""

from dataclasses import dataclass
from math import prod

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
        dense1 = product("dense1", he_uniform((self.hidden, pooled)), has_bias=True, image=self.pooled_shape[:2])
        dense2 = product("dense2", he_uniform((self.num_classes, self.hidden)), has_bias=True)
        shapes = first, self.pooled_shape, (self.hidden,), (self.num_classes,)
        return [Part(layer.name, (layer,), shape) for layer, shape in zip((conv1, conv2, dense1, dense2), shapes, strict=True)]


WORKLOADS = {"cnn": Workload(Cnn(), ("digits", "mnist"), 16, 90, 20, 0.94, "sgd", {"sgd": 0.004, "adam": 0.001})}
