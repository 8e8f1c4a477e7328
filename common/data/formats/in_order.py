"""Rows of a file that is read from the front: those between the wanted ones are read too."""

from itertools import islice


class InOrder:
    """`records()` begins at the front of the file and gives the bytes of (inputs, targets) of each sample. One thread reads at a time."""

    def __init__(self, records):
        self._records, self._rest, self._next = records, None, 0

    def read(self, indices, rows):
        """Reads the rows at these ascending indices; the file is opened again for a row that has been passed."""
        if self._rest is None or indices[0] < self._next:
            self._rest, self._next = self._records(), 0
        for place, index in enumerate(indices):
            sample = next(islice(self._rest, int(index) - self._next, None), None)
            if sample is None:
                raise EOFError("it ends before its last sample")
            self._next = int(index) + 1
            for array, values in zip(rows, sample, strict=True):
                array[place] = values
