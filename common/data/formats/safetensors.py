"""The format of safetensors: a file for each shard, with the tensors `inputs` and `targets`.

The library writes it. It reads through a mapping of the whole file, whose memory grows with what has been read, so rows are read at the
offsets of the header: its length in 8 bytes, little-endian, and JSON (github.com/huggingface/safetensors, README, Format).
"""

import json

from common.data.formats import NAMES
from common.data.formats.shards import RowsInFile

IN_ORDER = False
NUM_FILES = 1
OPEN_BYTES = 2**12


def encode(inputs, targets):
    from safetensors.numpy import save

    return {".safetensors": save(dict(zip(NAMES, (inputs, targets), strict=True)))}


class Shard:
    def __init__(self, stem, layout, use):
        path = f"{stem}.safetensors"
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        begins = [8 + size + header[name]["data_offsets"][0] for name in NAMES]
        self._arrays = [RowsInFile(path, begin, of_row) for begin, of_row in zip(begins, layout, strict=True)]
        use.opened(1)

    def read(self, indices, rows):
        for file_array, array in zip(self._arrays, rows, strict=True):
            file_array.read(indices, array)
