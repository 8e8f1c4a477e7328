"""NumPy's own format: a file with the inputs of a shard and one with its targets.

Neither is mapped into memory, so what is read stays bounded.
"""

import io
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from common.data.formats import NAMES, Layout
from common.data.storage_use import Use

IN_ORDER = False
NUM_FILES = 2
OPEN_BYTES = 2**12
# NumPy parses a header as Python. Before Python 3.11.8 that may fail if two threads do it at once (python/cpython#106905).
PARSING = threading.Lock()


def encode(inputs: np.ndarray, targets: np.ndarray) -> dict[str, bytes]:
    return {f".{name}.npy": as_npy(array) for name, array in zip(NAMES, (inputs, targets), strict=True)}


def as_npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


class RowsInFile:
    """An array in a file, from an offset on. Several threads may read at once."""

    def __init__(self, path: str, offset: int, row_type: np.dtype) -> None:
        self._file, self._offset, self._size = os.open(path, os.O_RDONLY | os.O_CLOEXEC), offset, row_type.itemsize

    def __del__(self) -> None:
        # A reading thread may still have this file while another one has dropped it.
        if hasattr(self, "_file"):
            os.close(self._file)

    def read(self, indices: np.ndarray, rows: np.ndarray) -> None:
        """Reads the rows at these ascending indices, neighbours at once. Raises EOFError where the file ends before them."""
        view = rows.reshape(-1).view(np.uint8).data
        begins = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
        for begin, end in zip(begins, [*begins[1:], len(indices)], strict=True):
            part = view[begin * self._size : end * self._size]
            if os.preadv(self._file, [part], self._offset + int(indices[begin]) * self._size) != len(part):
                raise EOFError("it ends before its last sample")


class Shard:
    def __init__(self, stem: Path, layout: Layout, use: Use) -> None:
        paths = [f"{stem}.{name}.npy" for name in NAMES]
        self._arrays = [RowsInFile(path, _offset(path), row_type) for path, row_type in zip(paths, layout, strict=True)]
        use.opened(len(paths))

    def read(self, indices: np.ndarray, rows: Sequence[np.ndarray]) -> None:
        for file_array, array in zip(self._arrays, rows, strict=True):
            file_array.read(indices, array)


def _offset(path: str) -> int:
    """Returns the position in the file at which the values begin."""
    with open(path, "rb") as file, PARSING:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        return file.tell()
