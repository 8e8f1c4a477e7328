"""The CNN of the ALCF tutorials and of Horovod's and PyTorch's MNIST examples."""

from math import prod
from typing import NamedTuple

from common.model.operations import Activation, Convolution, Dense, Pooling
from common.model.parts import FLOAT32, INDEX_BYTES, Part, Sizes, product
from common.model.weights import he_uniform


class Cnn(NamedTuple):
    """Two convolutions, which do not pad, a max-pooling, and two dense layers: 1,199,882 parameters."""

    input_shape: tuple[int, ...] = (28, 28)
    target_shape: tuple[int, ...] = ()
    whole_inputs: bool = False
    whole_targets: bool = True

    pixels = False
    tokens_per_sample = None
    channels = 32, 64
    window, pooling = 3, 2
    hidden, num_classes = 128, 10

    @property
    def logits_shape(self) -> tuple[int, ...]:
        return (self.num_classes,)

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

    def parts(self, sizes: Sizes = FLOAT32, _: int = 1) -> list[Part]:
        """Returns the layers. Each keeps its result after the activation function, and the pooling its result and the places of maxima."""
        first, second = self.convolved_shapes
        pooled, window, factor = prod(self.pooled_shape), (self.window, self.window), sizes.factor
        height, width = self.input_shape
        images = height, width, 1
        to_first = Convolution(input_shape=images, num_outputs=first[-1], size=self.window, has_bias=True, takes_batch=True)
        to_second = Convolution(input_shape=first, num_outputs=second[-1], size=self.window, has_bias=True)
        to_hidden = Dense(input_shape=(pooled,), num_outputs=self.hidden, has_bias=True)
        to_classes = Dense(input_shape=(self.hidden,), num_outputs=self.num_classes, has_bias=True)
        relus = [Activation(name="relu", input_shape=shape) for shape in (first, second, (self.hidden,))]
        pooling = Pooling(input_shape=second, size=self.pooling, stride=self.pooling)
        conv1 = product("conv1", he_uniform((first[-1], 1, *window)), to_first).followed_by(relus[0])
        conv2 = product("conv2", he_uniform((second[-1], first[-1], *window)), to_second).followed_by(relus[1], pooling)
        dense1 = product("dense1", he_uniform((self.hidden, pooled)), to_hidden).followed_by(relus[2])
        dense2 = product("dense2", he_uniform((self.num_classes, self.hidden)), to_classes)
        # Mixed precision casts the images.
        cast = prod(self.input_shape) if sizes.mixed else 0
        # The backward pass has the gradients of a layer's result before and after its activation function.
        return [
            Part("conv1", (conv1,), first, factor * (prod(first) + cast), 2 * factor * prod(first)),
            Part("conv2", (conv2,), self.pooled_shape, factor * (prod(second) + pooled) + INDEX_BYTES * pooled, 2 * factor * prod(second)),
            Part("dense1", (dense1,), (self.hidden,), factor * self.hidden, 2 * factor * self.hidden),
            Part("dense2", (dense2,), (self.num_classes,), sizes.statistic * self.num_classes, 2 * sizes.statistic * self.num_classes),
        ]
