"""The initial parameters, drawn once in NumPy under one naming scheme; the frameworks convert them to their layouts."""

import hashlib
import math
import zlib

import numpy as np

DTYPES = {"fp32": np.float32, "fp64": np.float64}


def draw(parameters, seed, precision):
    """{name: array} for {name: shape}, every weight from a random stream of its own, biases 0.

    Uniform within sqrt(6 / fan-in): He et al. 2015, arXiv:1502.01852, section 2.2. Drawn in float64, so that both
    precisions start alike.
    """
    drawn = {}
    for name, shape in parameters.items():
        if name.endswith(".bias"):
            values = np.zeros(shape)
        else:
            bound = math.sqrt(6 / math.prod(shape[1:]))
            values = np.random.default_rng([seed, zlib.crc32(name.encode())]).uniform(-bound, bound, shape)
        drawn[name] = values.astype(DTYPES[precision])
    return drawn


def digest(state):
    """SHA-256 over names and bytes of {name: array}, whatever their order."""
    total = hashlib.sha256()
    for name in sorted(state):
        total.update(name.encode())
        total.update(np.ascontiguousarray(state[name]).data)
    return total.digest()
