"""What the shards of several formats read through. Nothing is mapped into memory, so what is read stays bounded."""

import os
from abc import ABC, abstractmethod
from itertools import islice

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


class InOrder(ABC):
    """A shard that is read from the front: the rows between those that are asked for are read too. One thread reads at a time."""

    def __init__(self, use):
        self._use, self._rest, self._next = use, None, 0

    @abstractmethod
    def records(self):
        """Yields (inputs, targets) of each sample, from the front of the file."""

    def read(self, indices, rows):
        """Reads the rows at these ascending indices; the file is opened again for a row that has been passed."""
        if self._rest is None or indices[0] < self._next:
            self._rest, self._next = self.records(), 0
            self._use.opened(1)
        for place, index in enumerate(indices):
            sample = next(islice(self._rest, int(index) - self._next, None), None)
            if sample is None:
                raise EOFError("it ends before its last sample")
            self._next = int(index) + 1
            for array, values in zip(rows, sample, strict=True):
                array[place] = values
