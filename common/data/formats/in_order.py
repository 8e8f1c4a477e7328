"""Shards whose file is read from the front: the rows between those that are asked for are read too."""

from abc import ABC, abstractmethod
from itertools import islice


class InOrder(ABC):
    """A shard that can be read in order only. One thread reads at a time."""

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
