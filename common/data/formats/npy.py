"""NumPy's own format: a file with the inputs of a shard and one with its targets."""

import io
import threading

import numpy as np

from common.data.formats import NAMES
from common.data.formats.shards import RowsInFile

IN_ORDER = False
NUM_FILES = 2
OPEN_BYTES = 2**12
# NumPy parses a header as Python. Before Python 3.11.8 that may fail where two reading threads do it (python/cpython#106905).
PARSING = threading.Lock()


def encode(inputs, targets):
    return {f".{name}.npy": as_npy(array) for name, array in zip(NAMES, (inputs, targets), strict=True)}


def as_npy(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def from_npy(content):
    with PARSING:
        return np.load(io.BytesIO(content), allow_pickle=False)


class Shard:
    def __init__(self, stem, layout, use):
        paths = [f"{stem}.{name}.npy" for name in NAMES]
        self._arrays = [RowsInFile(path, _offset(path), of_row) for path, of_row in zip(paths, layout, strict=True)]
        use.opened(len(paths))

    def read(self, indices, rows):
        for file_array, array in zip(self._arrays, rows, strict=True):
            file_array.read(indices, array)


def _offset(path):
    """Returns the position in the file at which the values begin."""
    with open(path, "rb") as file, PARSING:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        return file.tell()
