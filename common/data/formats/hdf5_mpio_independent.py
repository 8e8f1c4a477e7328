"""The files of `hdf5`, read through MPI-IO by each rank for itself."""

from h5py import h5fd

from common.data.formats import hdf5_mpio

IN_ORDER = False
NUM_FILES = 1
OPEN_BYTES = hdf5_mpio.OPEN_FILE_BYTES
WRITTEN_AS = "hdf5"

expect_usable = hdf5_mpio.expect_usable


class Shard:
    def __init__(self, stem, layout, use):
        self._file = hdf5_mpio.opened(stem, hdf5_mpio.mpi().COMM_SELF)
        use.opened(1)

    def read(self, indices, rows):
        hdf5_mpio.read(self._file, indices, rows, h5fd.MPIO_INDEPENDENT)
