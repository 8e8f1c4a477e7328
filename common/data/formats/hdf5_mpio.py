"""The files of `hdf5`, read through MPI-IO by all ranks together: in each step all open the same files and read their own samples at once.

It needs an h5py that was built with MPI: launch/setup/README.md.
"""

import functools

import numpy as np

from common.data.formats import mpi_io

IN_ORDER = False
NUM_FILES = 1
MAX_OPEN = 32
OPEN_BYTES = MAX_OPEN * mpi_io.OPEN_BYTES
WRITTEN_AS = "hdf5"

expect_usable = mpi_io.expect_usable


def of_all_ranks(numbers):
    """Returns the numbers that any rank has, ascending. All ranks call it."""
    return np.unique(np.concatenate(mpi_io.world().allgather(np.asarray(numbers))))


# Of the module, since closing a file waits for all ranks: one that fails by itself must leave its files open.
@functools.lru_cache(MAX_OPEN)
def _opened(stem):
    return mpi_io.opened(stem, mpi_io.world())


class Shard:
    """All ranks read from the same shards in the same order, those with no sample in one too."""

    def __init__(self, stem, layout, use):
        self._stem, self._use = stem, use

    def read(self, indices, rows):
        before = _opened.cache_info().misses
        file = _opened(self._stem)
        self._use.opened(_opened.cache_info().misses - before)
        mpi_io.read(file, indices, rows, is_collective=True)
