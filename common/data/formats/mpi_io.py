"""HDF5 files opened and read through MPI-IO (h5py's driver `mpio`), for the formats that do."""

import functools

import h5py
import numpy as np
from h5py import h5d, h5fd, h5p, h5s

from common.data.formats import hdf5
from common.errors import UserError
from common.process.ranks import from_environment
from common.process.rendezvous import expect_size

# The piece of a file that a collective call reads at once (ROMIO's cb_buffer_size). With its 16 MiB a few random samples take nearly the
# whole file, and each open file keeps as much memory.
BUFFER_BYTES = 2**18
OPEN_BYTES = hdf5.OPEN_BYTES + BUFFER_BYTES


def expect_usable(data_format):
    """Raises UserError where h5py was built without MPI."""
    if not h5py.get_config().mpi:
        raise UserError(
            f"--data-format {data_format} needs an h5py that was built with MPI; run TANDEM_HDF5=parallel launch/setup.sh, or give hdf5"
        )


@functools.cache
def world():
    """Returns the communicator of all ranks. Raises UserError where MPI has another number of them."""
    MPI = _initialized()
    expect_size(from_environment(), MPI.COMM_WORLD.size, "MPI, through which the files are read,")
    return MPI.COMM_WORLD


def alone():
    """Returns the communicator of this rank."""
    return _initialized().COMM_SELF


def _initialized():
    """Returns mpi4py's MPI, which it initializes where nobody has."""
    # Not at the top, since the import initializes MPI, unless an earlier one that asked for its version did not.
    from mpi4py import MPI

    if not MPI.Is_initialized():
        MPI.Init_thread()
    return MPI


def opened(stem, communicator):
    """Opens the file of a shard on all ranks of the communicator."""
    hints = _initialized().Info.Create({"cb_buffer_size": str(BUFFER_BYTES)})
    return h5py.File(f"{stem}.h5", "r", driver="mpio", comm=communicator, info=hints, locking=False)


def read(file, indices, rows, is_collective):
    """Reads the samples at ascending indices into rows, the arrays of their inputs and targets, each in one call."""
    transfer = h5p.create(h5p.DATASET_XFER)
    transfer.set_dxpl_mpio(h5fd.MPIO_COLLECTIVE if is_collective else h5fd.MPIO_INDEPENDENT)
    begins, ends = np.flatnonzero(np.diff(indices, prepend=-2) != 1), np.flatnonzero(np.diff(indices, append=-2) != 1) + 1
    for name, array in zip(("inputs", "targets"), rows, strict=True):
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
