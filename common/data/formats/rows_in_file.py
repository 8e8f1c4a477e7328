"""Rows of an array that lies in a file row by row, read by their numbers. Nothing is mapped into memory, so what is read stays bounded."""

import os

import numpy as np


class RowsInFile:
    """An array in a file, from an offset on, whose rows are `of_row`. Several threads may read at once."""

    def __init__(self, path, offset, of_row):
        self._file, self._offset, self._size = os.open(path, os.O_RDONLY | os.O_CLOEXEC), offset, of_row.itemsize

    def __del__(self):
        # Reading threads may still have this file while others have dropped it.
        if hasattr(self, "_file"):
            os.close(self._file)

    def read(self, indices, rows):
        """Reads the rows at these ascending indices, neighbours at once. Raises EOFError where the file ends before them."""
        view = memoryview(rows.reshape(-1).view(np.uint8))
        begins = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
        for begin, end in zip(begins, [*begins[1:], len(indices)], strict=True):
            part = view[begin * self._size : end * self._size]
            if os.preadv(self._file, [part], self._offset + int(indices[begin]) * self._size) != len(part):
                raise EOFError("it ends before its last sample")
