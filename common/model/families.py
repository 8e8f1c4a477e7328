"""The model families, and what follows from the parts of all of them."""

import functools

import numpy as np

from common.errors import UserError
from common.model.cnn import Cnn
from common.model.decoder import Decoder
from common.model.encoder_decoder import EncoderDecoder
from common.model.parts import FLOAT32
from common.model.resnet import ResNet50
from common.model.weights import DTYPES

Model = Cnn | Decoder | EncoderDecoder | ResNet50


# Typed, since tuples of the same sizes are equal.
@functools.lru_cache(typed=True)
def parts_of(model, sizes=FLOAT32, num_divisions=1):
    """The Parts of a model in the order of the forward pass, with activations in bytes of these Sizes."""
    return tuple(model.parts(sizes, num_divisions))


def layers_of(model):
    """The Layers of a model in the order of the forward pass."""
    return [layer for part in parts_of(model) for layer in part.layers]


def parameters_of(model):
    """{name: Initial} of all parameters of a model."""
    return {f"{layer.name}.{name}": initial for layer in layers_of(model) for name, initial in layer.parameters.items()}


def training_flops(model):
    """Floating-point operations to train on one sample, of matrix products and convolutions: three times those of the forward pass.

    The backward pass has two products for each of the forward pass (Chowdhery et al. 2022, arXiv:2204.02311, appendix B). Activations that
    are computed again (--recompute) do not count.
    """
    return 3 * sum(part.flops for part in parts_of(model))


def problem(model):
    """Why a model cannot be trained by what its description lacks; None if it can."""
    if lacking := [layer.name for layer in layers_of(model) if layer.flops is None]:
        return f"the description of {type(model).__name__} does not state the FLOPs of {', '.join(lacking)}; add them to its parts"
    return None


def implementation_of(model, implementations, framework):
    """What computes a model, of the {type of a model: its implementation} of a framework. Raises UserError if there is none."""
    if type(model) not in implementations:
        room = f"frameworks/shared/{framework.lower()}"
        raise UserError(f"{framework} has no implementation of {type(model).__name__}; add one in {room}")
    return implementations[type(model)]


def can_recompute(model):
    """Whether a model has layers or blocks of which --recompute keeps the activations of one at a time."""
    return any(part.inputs is not None for part in parts_of(model))


def input_type(model, precision):
    """NumPy's type of the inputs in a batch.

    Integers are int64, which all frameworks accept, but pixels are bytes: a model scales them on its device, and less is moved there.
    """
    if model.pixels:
        return np.uint8
    return np.int64 if model.whole_inputs else DTYPES[precision]


# Weights of layers on flattened images: (channels, height, width), by which weights.py orders their columns. The frameworks order
# them by (height, width, channels), as their images lie in memory.
FLATTENED = {"dense1.weight": (Cnn.channels[-1], *Cnn().pooled_shape[:2])}


def flattened_channels_last(name, array):
    """A weight (outputs, columns) in the order of the frameworks, from that of weights.py."""
    return array.reshape(len(array), *FLATTENED[name]).transpose(0, 2, 3, 1).reshape(len(array), -1)


def flattened_channels_first(name, array):
    """The inverse of `flattened_channels_last`."""
    channels, height, width = FLATTENED[name]
    return array.reshape(len(array), height, width, channels).transpose(0, 3, 1, 2).reshape(len(array), -1)
