"""The files of `hdf5`, read through MPI-IO (h5py's driver `mpio`) by all ranks together.

In each step all open the same files and read their own samples at once. It needs an h5py that was built with MPI: launch/setup/README.md.
"""

import functools

import h5py
import numpy as np
from h5py import h5d, h5fd, h5p, h5s

from common.data.formats import NAMES, hdf5
from common.errors import UserError
from common.process.ranks import from_environment
from common.process.rendezvous import expect_size

# The piece of a file that a collective call reads at once (ROMIO's cb_buffer_size). With its 16 MiB a few random samples take nearly the
# whole file, and each open file keeps as much memory.
BUFFER_BYTES = 2**18
MAX_OPEN = 32
OPEN_FILE_BYTES = hdf5.OPEN_BYTES + BUFFER_BYTES
IN_ORDER = False
NUM_FILES = 1
OPEN_BYTES = MAX_OPEN * OPEN_FILE_BYTES
WRITTEN_AS = "hdf5"


def expect_usable(data_format):
    """Raises UserError where h5py was built without MPI."""
    if not h5py.get_config().mpi:
        raise UserError(
            f"--data-format {data_format} needs an h5py that was built with MPI; run TANDEM_HDF5=parallel launch/setup.sh, or give hdf5"
        )


def of_all_ranks(numbers):
    """Returns the numbers that any rank has, ascending. All ranks call it."""
    return np.unique(np.concatenate(_world().allgather(np.asarray(numbers))))


class Shard:
    """All ranks read from the same shards in the same order, those with no sample in one too."""

    def __init__(self, stem, layout, use):
        self._stem, self._use = stem, use

    def read(self, indices, rows):
        before = _opened.cache_info().misses
        file = _opened(self._stem)
        self._use.opened(_opened.cache_info().misses - before)
        read(file, indices, rows, h5fd.MPIO_COLLECTIVE)


# Of the module, since closing a file waits for all ranks: one that fails by itself must leave its files open.
@functools.lru_cache(MAX_OPEN)
def _opened(stem):
    return opened(stem, _world())


@functools.cache
def _world():
    """Returns the communicator of all ranks. Raises UserError where MPI has another number of them."""
    world = mpi().COMM_WORLD
    expect_size(from_environment(), world.size, "MPI, through which the files are read,")
    return world


def mpi():
    """Returns mpi4py's MPI, which it initializes where nobody has."""
    # Not at the top, since the import initializes MPI, unless an earlier one that asked for its version did not.
    from mpi4py import MPI

    if not MPI.Is_initialized():
        MPI.Init_thread()
    return MPI


def opened(stem, communicator):
    """Opens the file of a shard on all ranks of the communicator."""
    hints = mpi().Info.Create({"cb_buffer_size": str(BUFFER_BYTES)})
    return h5py.File(f"{stem}.h5", "r", driver="mpio", comm=communicator, info=hints, locking=False)


def read(file, indices, rows, transfer_mode):
    """Reads the samples at ascending indices into rows, the arrays of their inputs and targets, each in one call."""
    transfer = h5p.create(h5p.DATASET_XFER)
    transfer.set_dxpl_mpio(transfer_mode)
    begins, ends = np.flatnonzero(np.diff(indices, prepend=-2) != 1), np.flatnonzero(np.diff(indices, append=-2) != 1) + 1
    for name, array in zip(NAMES, rows, strict=True):
        dataset = h5d.open(file.id, name.encode())
        in_file = dataset.get_space()
        in_file.select_none()
        for begin, end in zip(begins, ends, strict=True):
            first = (int(indices[begin]), *[0] * (array.ndim - 1))
            in_file.select_hyperslab(first, (int(end - begin), *array.shape[1:]), op=h5s.SELECT_OR)
        # HDF5 has no space without elements that a read takes, so nothing is selected from one of a row.
        into = np.empty((1, *array.shape[1:]), array.dtype) if not len(array) else array
        in_memory = h5s.create_simple(into.shape)
        if not len(array):
            in_memory.select_none()
        dataset.read(in_memory, in_file, into, dxpl=transfer)
