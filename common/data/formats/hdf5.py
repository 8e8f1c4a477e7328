"""HDF5: a file for each shard, with the datasets `inputs` and `targets`, in chunks of as many samples as fill 16 KiB.

To read a sample in random order, its whole chunk is read: with chunks of 64 KiB and samples of 3 KB, 16 times the bytes of the samples.
Files are opened without locks, which parallel file systems may refuse; HDF5_USE_FILE_LOCKING takes precedence.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from common.data.formats import NAMES, Layout
from common.data.storage_use import Use

IN_ORDER = False
NUM_FILES = 1
# Half of it is the table of the library's metadata cache (H5Cpkg.h, H5C__HASH_TABLE_LEN).
OPEN_BYTES = 2**20
CHUNK_BYTES = 2**14


def encode(inputs: np.ndarray, targets: np.ndarray) -> dict[str, bytes]:
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        for name, array in zip(NAMES, (inputs, targets), strict=True):
            num_in_chunk = max(1, CHUNK_BYTES // array[:1].nbytes)
            chunks = (min(num_in_chunk, len(array)), *array.shape[1:])
            file.create_dataset(name, data=array, chunks=chunks, track_times=False)
    return {".h5": stream.getvalue()}


class Shard:
    def __init__(self, stem: Path, layout: Layout, use: Use) -> None:
        file = h5py.File(f"{stem}.h5", "r", locking=False, rdcc_nbytes=2 * CHUNK_BYTES)
        self._datasets = [_dataset(file, name) for name in NAMES]
        use.opened(1)

    def read(self, indices: np.ndarray, rows: Sequence[np.ndarray]) -> None:
        for dataset, array in zip(self._datasets, rows, strict=True):
            # Rows are read one by one: h5py takes 16 µs for a row of 3 KB, and 40 for each of several that are selected at once.
            for place, index in enumerate(indices):
                array[place] = dataset[int(index)]


def _dataset(file: h5py.File, name: str) -> h5py.Dataset:
    dataset = file[name]
    if not isinstance(dataset, h5py.Dataset):
        raise TypeError(f"its {name} are not a dataset")
    return dataset
