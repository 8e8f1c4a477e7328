"""The model families, and what follows from their parts."""

import functools
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from common.errors import UserError
from common.model import own_model, weights
from common.model.cnn import Cnn
from common.model.decoder import Decoder
from common.model.encoder_decoder import EncoderDecoder
from common.model.operations import Loss, Operation
from common.model.own_model import OwnModel
from common.model.parts import FLOAT32, Layer, Part, Sizes
from common.model.resnet import ResNet50
from common.model.weights import DTYPES, Initial

Described = Cnn | Decoder | EncoderDecoder | ResNet50
Model = Described | OwnModel
Implementation = TypeVar("Implementation")


# The cache distinguishes types, since tuples of equal sizes are equal whatever their family is.
@functools.lru_cache(typed=True)
def parts_of(model: Model, sizes: Sizes = FLOAT32, num_divisions: int = 1) -> tuple[Part, ...]:
    """Returns the parts of a model in the order of the forward pass, with activations in bytes."""
    return tuple(model.parts(sizes, num_divisions))


def layers_of(model: Model) -> list[Layer]:
    """Returns the layers of a model in the order of the forward pass."""
    return [layer for part in parts_of(model) for layer in part.layers]


def operations_of(model: Described) -> list[Operation]:
    """Returns the operations of all layers of a model in the order of the forward pass, and the loss."""
    loss = Loss(logits_shape=model.logits_shape, whole_targets=model.whole_targets)
    return [*(operation for layer in layers_of(model) for operation in layer.operations), loss]


def parameters_of(model: Model) -> dict[str, Initial]:
    """Returns all parameters of a model by name."""
    return {f"{layer.name}.{name}".removeprefix("."): initial for layer in layers_of(model) for name, initial in layer.parameters.items()}


def initial_values(model: Model, seed: int, precision: str) -> dict[str, np.ndarray]:
    """Draws the initial values of the parameters of a model by name, or builds them as a user's file does."""
    if isinstance(model, OwnModel):
        return own_model.initial_values(model, seed, precision)
    return weights.draw(parameters_of(model), seed, precision)


def training_flops(model: Model) -> int | None:
    """Returns the operations of matrix products and convolutions to train on one sample: three times those of the forward pass.

    Those of a model of the user's own are counted, and None where they are not known.

    The backward pass has two products for each of the forward pass (Chowdhery et al. 2022, arXiv:2204.02311, appendix B). Activations that
    are computed again (--recompute) do not count.
    """
    if isinstance(model, OwnModel):
        return own_model.training_flops(model)
    return 3 * sum(part.flops for part in parts_of(model))


def problem(model: Model) -> str | None:
    """Returns why a model cannot be trained because of what its description lacks, or None if it can."""
    if lacking := [layer.name for layer in layers_of(model) if layer.flops is None]:
        return f"the description of {type(model).__name__} does not state the FLOPs of {', '.join(lacking)}; add them to its parts"
    return None


def implementation_of(
    model: Model, implementations: Mapping[type, Callable[..., Implementation]], framework: str
) -> Callable[..., Implementation]:
    """Returns the implementation of a model, from those of a framework by type of model. Raises UserError if there is none."""
    if type(model) not in implementations:
        room = f"frameworks/shared/{framework.lower()}"
        raise UserError(f"{framework} has no implementation of {type(model).__name__}; add one in {room}")
    return implementations[type(model)]


def can_recompute(model: Model) -> bool:
    """Returns whether a model has layers or blocks of which --recompute keeps the activations of one at a time."""
    if isinstance(model, OwnModel):
        return own_model.has_layers(model)
    return any(part.inputs is not None for part in parts_of(model))


def input_type(model: Described, precision: str) -> type[np.number]:
    """Returns NumPy's type of the inputs in a batch.

    Integers are int64, which all frameworks accept, but pixels are bytes: the model scales them on its device, and less is moved there.
    """
    if model.pixels:
        return np.uint8
    return np.int64 if model.whole_inputs else DTYPES[precision]


# The (channels, height, width) of the flattened images that a layer takes. The columns of its weight have this order in weights.py. The
# frameworks order them by (height, width, channels), as images lie in their memory.
FLATTENED = {"dense1.weight": (Cnn.channels[-1], *Cnn().pooled_shape[:2])}


def flattened_channels_last(name: str, array: np.ndarray) -> np.ndarray:
    """Converts a weight (outputs, columns) from the order of weights.py to that of the frameworks."""
    return array.reshape(len(array), *FLATTENED[name]).transpose(0, 2, 3, 1).reshape(len(array), -1)


def flattened_channels_first(name: str, array: np.ndarray) -> np.ndarray:
    """Converts a weight (outputs, columns) from the order of the frameworks to that of weights.py."""
    channels, height, width = FLATTENED[name]
    return array.reshape(len(array), height, width, channels).transpose(0, 3, 1, 2).reshape(len(array), -1)
