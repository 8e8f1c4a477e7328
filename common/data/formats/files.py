"""One file for each sample: in a folder for each shard, NumPy files of one record with the fields `inputs` and `targets`."""

import os

import numpy as np

from common.data.formats import NAMES
from common.data.formats.npy import as_npy, from_npy

IN_ORDER = False
NUM_FILES = 1
OPEN_BYTES = 0
FOLDER, FILE = ".samples", "{:07d}.npy"


def encode(inputs, targets):
    records = np.empty(len(inputs), _record_type(np.dtype((array.dtype, array.shape[1:])) for array in (inputs, targets)))
    records["inputs"], records["targets"] = inputs, targets
    return {FOLDER: {FILE.format(number): as_npy(record) for number, record in enumerate(records)}}


def _record_type(layout):
    return np.dtype(list(zip(NAMES, layout, strict=True)))


class Shard:
    def __init__(self, stem, layout, use):
        self._folder, self._use = f"{stem}{FOLDER}", use
        self._type = _record_type(layout)

    def read(self, indices, rows):
        for place, index in enumerate(indices):
            with open(os.path.join(self._folder, FILE.format(index)), "rb") as file:
                record = from_npy(file.read())
            if record.dtype != self._type:
                raise ValueError(f"{FILE.format(index)} has other fields")
            for name, array in zip(NAMES, rows, strict=True):
                array[place] = record[name]
        self._use.opened(len(indices))
