"""HDF5: a file for each shard, with the datasets `inputs` and `targets`, in chunks of as many samples as fill 16 KiB.

A sample in random order takes the reading of its whole chunk: with 64 KiB, and samples of 3 KB, 16 times the bytes of the samples.
Files are opened without locks, which parallel file systems may refuse; HDF5_USE_FILE_LOCKING takes precedence.
"""

import io

import h5py

from common.data.formats import NAMES

IN_ORDER = False
NUM_FILES = 1
# Half of it is the table of the library's metadata cache (H5Cpkg.h, H5C__HASH_TABLE_LEN).
OPEN_BYTES = 2**20
CHUNK_BYTES = 2**14


def encode(inputs, targets):
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        for name, array in zip(NAMES, (inputs, targets), strict=True):
            num_in_chunk = max(1, CHUNK_BYTES // array[:1].nbytes)
            chunks = (min(num_in_chunk, len(array)), *array.shape[1:])
            file.create_dataset(name, data=array, chunks=chunks, track_times=False)
    return {".h5": stream.getvalue()}


class Shard:
    def __init__(self, stem, layout, use):
        file = h5py.File(f"{stem}.h5", "r", locking=False, rdcc_nbytes=2 * CHUNK_BYTES)
        self._datasets = [file[name] for name in NAMES]
        use.opened(1)

    def read(self, indices, rows):
        for dataset, array in zip(self._datasets, rows, strict=True):
            # One by one: h5py takes 16 µs for a row of 3 KB, and 40 for each of several that are selected at once.
            for place, index in enumerate(indices):
                array[place] = dataset[int(index)]
