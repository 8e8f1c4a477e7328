"""Samples in files of NumPy or HDF5, from which a run reads those of each batch when it needs them (--data-format).

A folder has the arrays NAMES of the parts `train` and `test`, in `data.h5` or in a .npy file each, and `source.json`, which says what
data they are, with the digest of the same data in memory. This file is written last: without it the folder is not complete.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common import durable
from common.command_line import flag
from common.config import Settings
from common.data.samples import Arrays, Dataset
from common.declarations import SHELL_PYTHON
from common.errors import UserError
from common.model.weights import DTYPES

if TYPE_CHECKING:
    import h5py

NAMES = ("inputs", "targets")
SOURCE = "source.json"
HDF5 = "data.h5"
CONVERT = f"write it with {SHELL_PYTHON} -m launch.convert_data into an empty folder"


def _rows(array: "np.ndarray | h5py.Dataset", indices: np.ndarray) -> np.ndarray:
    # One by one: h5py takes 16 µs for a row of 3 KB, and 40 for each of several that are selected at once.
    return np.stack([array[index] for index in indices.tolist()])


def write(folder: Path, settings: Settings, dataset: Dataset) -> None:
    """Writes the data that runs with these settings train, in their --data-format."""
    arrays = {}
    for split, samples in (("train", dataset.train), ("test", dataset.test)):
        assert isinstance(samples, Arrays), "data is converted from memory"
        arrays |= {f"{split}_{name}": getattr(samples, name) for name in NAMES}
    if settings.data_format == "npy":
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
    else:
        import h5py

        with h5py.File(folder / HDF5, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    durable.write_text(folder / SOURCE, json.dumps(_source(settings) | {"digest": dataset.digest}, indent=1) + "\n")


def find(folder: Path, settings: Settings) -> Dataset:
    """Returns the Dataset in a folder. Raises UserError where it is damaged, or not that of the settings."""
    try:
        source = json.loads(durable.read_bytes(folder / SOURCE))
        _expect_source(folder, source, settings)
        arrays = _open(folder, settings.data_format)
        train, test = (Arrays(arrays[f"{split}_inputs"], arrays[f"{split}_targets"], _rows) for split in ("train", "test"))
        inputs_type, digest = train.inputs.dtype, source["digest"]
    except FileNotFoundError as error:
        raise UserError(f"{error.filename or folder} is not there, so the data is not complete; {CONVERT}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError) as error:
        raise UserError(f"--data-dir {folder} cannot be read ({' '.join(f'{error!r}'.split())}); {CONVERT}") from None
    needed = np.dtype(DTYPES[settings.precision])
    if inputs_type.kind == "f" and inputs_type != needed:
        raise UserError(
            f"--data-dir {folder} has samples of {inputs_type}, and --precision {settings.precision} needs {needed}; "
            f"convert them with --precision {settings.precision}"
        )
    return Dataset(train, test, digest)


def _open(folder: Path, data_format: str) -> Mapping[str, Any]:
    for path in folder.iterdir():
        durable.expect_regular(path)
    if data_format == "npy":
        return {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
    import h5py

    # Parallel file systems may refuse locks.
    return h5py.File(folder / HDF5, locking=False)


def _source(settings: Settings) -> dict[str, str | None]:
    """Returns what decides the data of resolved settings."""
    return {"data_format": settings.data_format, "workload": settings.workload, "dataset": settings.dataset}


def _expect_source(folder: Path, source: dict[str, Any], settings: Settings) -> None:
    for name, value in _source(settings).items():
        if source[name] != value:
            difference = f"{source[name]}, and this run has {value}"
            raise UserError(f"--data-dir {folder} was converted with {flag(name)} {difference}; convert the data of this run into a folder")
