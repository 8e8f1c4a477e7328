"""The formats that --data-format can name: a module for each.

A module has

- `encode(inputs, targets)`: encodes the samples of a shard, and returns the contents of its files by the ends of their names;
- `Shard(stem, layout, use)`: opens the files whose names begin with the path `stem`, and counts them;
- `IN_ORDER`: whether rows that are far apart are slow, since all rows between them are read too;
- `NUM_FILES`: the number of files of a shard;
- `OPEN_BYTES`: the most memory that an open shard takes.

Shards are opened when their first sample is read, in the process that reads them: an h5py file that is opened before a fork reads damaged
data. A file is closed when its Shard is dropped, and no file is mapped into memory.
"""

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Protocol, get_args

import numpy as np

from common.config import FileFormat
from common.errors import UserError

FORMATS = get_args(FileFormat)
# The names of the arrays of a shard, in files that name them.
NAMES = ("inputs", "targets")
# NumPy's types of the inputs and targets of a sample, with their shapes.
Layout = tuple[np.dtype, np.dtype]


class Shard(Protocol):
    """An open shard of the samples of a data set."""

    def read(self, indices: np.ndarray, rows: Sequence[np.ndarray]) -> None:
        """Reads the samples at these ascending indices into the rows of two arrays, of their inputs and targets."""


def module_of(name: str) -> ModuleType:
    """Returns the module of a format. Raises UserError if the library that it needs is not installed."""
    try:
        return importlib.import_module(f"common.data.formats.{name}")
    except ImportError as error:
        package = (error.name or str(error)).partition(".")[0].replace("_", "-")
        raise UserError(f"--data-format {name} needs the package {package}, which is not installed; run launch/setup.sh") from None
