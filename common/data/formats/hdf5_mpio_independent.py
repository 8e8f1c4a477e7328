"""The files of `hdf5`, read through MPI-IO by each rank for itself."""

from common.data.formats import mpi_io

IN_ORDER = False
NUM_FILES = 1
OPEN_BYTES = mpi_io.OPEN_BYTES
WRITTEN_AS = "hdf5"

expect_usable = mpi_io.expect_usable


class Shard:
    def __init__(self, stem, layout, use):
        self._file = mpi_io.opened(stem, mpi_io.alone())
        use.opened(1)

    def read(self, indices, rows):
        mpi_io.read(self._file, indices, rows, is_collective=False)
