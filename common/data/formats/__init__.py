"""The formats that --data-format can name: a module for each.

A module has `encode(inputs, targets)`, which gives the files of a shard, as {end of the name: bytes}; and the class
`Shard(stem, layout, use)`, which opens the files whose names begin with the path `stem`, and whose `read(indices, rows)` reads a shard's
samples by ascending indices into rows, the arrays of their inputs and targets. `layout`: NumPy's types of a sample's inputs and targets,
with their shapes. `use`: counts opens. A file is closed when its Shard is dropped, and none is mapped into memory.

`IN_ORDER`: rows far apart are slow, since all between them are read too. `NUM_FILES`: of a shard. `OPEN_BYTES`:
what an open shard takes of memory at most.

Shards are opened when their first sample is read, in the process that reads them: an h5py file that is opened before a fork reads damaged
data.
"""

import importlib

from common.errors import UserError

FORMATS = ("npy", "hdf5", "tfrecord")
# Of the arrays of a shard, in files that name them.
NAMES = ("inputs", "targets")


def module_of(name):
    """Returns the module of a format. Raises UserError where the library is not installed that it needs."""
    try:
        return importlib.import_module(f"common.data.formats.{name}")
    except ImportError as error:
        package = (error.name or str(error)).partition(".")[0].replace("_", "-")
        raise UserError(f"--data-format {name} needs the package {package}, which is not installed; run launch/setup.sh") from None
