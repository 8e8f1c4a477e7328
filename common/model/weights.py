"""Initial parameters, drawn in NumPy. Their names and layouts are the reference; the frameworks convert them to their own."""

import hashlib
import math
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

# The types of parameters, data and losses (common/model/conventions.py).
DTYPES: dict[str, type[np.floating]] = {"fp32": np.float32, "fp64": np.float64, "bf16": np.float32, "tf32": np.float32}

# The distribution of a parameter whose initial value is that of the module as it was built.
BUILT = "as built"
# Optimizer state: PyTorch's key -> prefix of its name in a state, PREFIX/PARAMETER.
OPTIMIZER_STATE = {
    "momentum_buffer": "momentum", "exp_avg": "adam_mean", "exp_avg_sq": "adam_square", "step": "adam_step",
    "max_exp_avg_sq": "adam_largest_square", "exp_inf": "adamax_largest", "mu_product": "nadam_product",
    "square_avg": "rmsprop_square", "grad_avg": "rmsprop_mean", "acc_delta": "adadelta_square",
}  # fmt: skip
# Of a parameter as a whole, whatever its shape, with the value at first. Other state is 0 at first.
SCALAR_STATE = {"step": 0.0, "mu_product": 1.0}
# Before the names of a model's buffers in a state: what a model has beside its parameters, such as running statistics.
BUFFER = "buffer/"


class Initial(NamedTuple):
    """Shape and initialization of a parameter. Shapes are PyTorch's: OIHW, (out, in)."""

    shape: tuple[int, ...]
    distribution: str
    scale: float


def constant(shape: tuple[int, ...], value: float = 0.0) -> Initial:
    return Initial(shape, "constant", value)


def he_uniform(shape: tuple[int, ...]) -> Initial:
    """Returns the uniform distribution within sqrt(6 / fan-in): He et al. 2015, arXiv:1502.01852, section 2.2."""
    return Initial(shape, "uniform", math.sqrt(6 / math.prod(shape[1:])))


def normal(shape: tuple[int, ...], deviation: float) -> Initial:
    return Initial(shape, "normal", deviation)


def draw(parameters: Mapping[str, Initial], seed: int, precision: str) -> dict[str, np.ndarray]:
    """Draws the values of parameters by name. Each parameter has a random stream of its own.

    Values are drawn in float64, so that those of fp32 are those of fp64, rounded.
    """
    return {name: _values(initial, name, seed).astype(DTYPES[precision]) for name, initial in parameters.items()}


def _values(initial: Initial, name: str, seed: int) -> np.ndarray:
    if initial.distribution == "constant":
        return np.full(initial.shape, initial.scale)
    stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if initial.distribution == "uniform":
        return stream.uniform(-initial.scale, initial.scale, initial.shape)
    return stream.normal(0, initial.scale, initial.shape)


def buffers_of(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the buffers of a state."""
    return {name: values for name, values in state.items() if name.startswith(BUFFER)}


def digest(state: Mapping[str, np.ndarray]) -> bytes:
    """Returns the SHA-256 of the names and bytes of arrays, independent of their order."""
    sha256 = hashlib.sha256()
    for name in sorted(state):
        sha256.update(name.encode())
        sha256.update(np.ascontiguousarray(state[name]).data)
    return sha256.digest()


def flattened_channels_last(array: np.ndarray, image: tuple[int, int]) -> np.ndarray:
    """Converts the weight of a layer of flattened images of this (height, width) to the order of the frameworks.

    Its columns are by (channels, height, width) here, and there by (height, width, channels), as images lie in their memory.
    """
    return array.reshape(len(array), -1, *image).transpose(0, 2, 3, 1).reshape(len(array), -1)


def flattened_channels_first(array: np.ndarray, image: tuple[int, int]) -> np.ndarray:
    """Converts such a weight back."""
    return array.reshape(len(array), *image, -1).transpose(0, 3, 1, 2).reshape(len(array), -1)
