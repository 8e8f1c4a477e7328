"""Initial parameters, drawn in NumPy. Their names and layouts are the reference; the frameworks convert them to their own."""

import hashlib
import math
import zlib
from typing import NamedTuple

import numpy as np

# Of parameters, data and losses (common/model/conventions.py).
DTYPES = {"fp32": np.float32, "fp64": np.float64, "bf16": np.float32, "tf32": np.float32}


class Initial(NamedTuple):
    """Shape and initialization of a parameter. Shapes as in PyTorch: OIHW, (out, in)."""

    shape: tuple[int, ...]
    distribution: str
    scale: float


def constant(shape, value=0.0):
    return Initial(shape, "constant", value)


def he_uniform(shape):
    """Uniform within sqrt(6 / fan-in): He et al. 2015, arXiv:1502.01852, section 2.2."""
    return Initial(shape, "uniform", math.sqrt(6 / math.prod(shape[1:])))


def xavier_uniform(shape):
    """Uniform within sqrt(6 / (fan-in + fan-out)): Glorot and Bengio 2010, eq. 16."""
    return Initial(shape, "uniform", math.sqrt(6 / sum(shape)))


def normal(shape, deviation):
    return Initial(shape, "normal", deviation)


def draw(parameters, seed, precision):
    """{name: array} for {name: Initial}; each parameter has its own random stream.

    Values are drawn in float64, so that fp32 is fp64 rounded.
    """
    return {name: _values(initial, name, seed).astype(DTYPES[precision]) for name, initial in parameters.items()}


def _values(initial, name, seed):
    if initial.distribution == "constant":
        return np.full(initial.shape, initial.scale)
    stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if initial.distribution == "uniform":
        return stream.uniform(-initial.scale, initial.scale, initial.shape)
    return stream.normal(0, initial.scale, initial.shape)


def digest(state):
    """SHA-256 of the names and bytes of {name: array}, independent of their order."""
    total = hashlib.sha256()
    for name in sorted(state):
        total.update(name.encode())
        total.update(np.ascontiguousarray(state[name]).data)
    return total.digest()
