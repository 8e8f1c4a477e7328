"""The manifest of a converted data set: what its folder has, and how a run knows that it is still that (common/README.md, Trust)."""

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common import durable
from common.data.formats import NAMES
from common.errors import UserError
from common.progress import no_progress

NAME = "manifest.json"
VERSION = 1
NUM_LOSSES = "train.num_losses.npy"


class FileState(NamedTuple):
    """Size and time of a file."""

    size_bytes: int
    changed_ns: int


class Manifest(NamedTuple):
    """What a folder has.

    `source`: what it was made from: `workload`, `dataset`, `tokenizer`; `copies`, how often its training samples follow each other; and
    `identity`, which tells the data from other data of that name. `data_digest`: that of the dataset, as a run records it.
    `num_samples`: of the parts `train` and `test`. `inputs` and `targets`: NumPy's type of those of a sample, with its shape.
    `files`: {name: [size, time in ns, SHA-256]}.
    `convert_seconds`: None where the conversion was interrupted.
    """

    data_format: str
    source: dict
    data_digest: str
    num_samples: dict[str, int]
    samples_per_file: int
    inputs: np.dtype
    targets: np.dtype
    files: dict[str, list]
    convert_seconds: float | None

    @property
    def size_bytes(self):
        """Bytes of all files."""
        return sum(size for size, *_ in self.files.values())


def write(folder, manifest):
    """Writes the manifest, which makes a data set of the folder."""
    rows = {name: getattr(manifest, name) for name in NAMES}
    content = {"version": VERSION} | manifest._asdict() | {name: [of_row.base.str, *of_row.shape] for name, of_row in rows.items()}
    durable.write_text(folder / NAME, json.dumps(content | {"sha256": _digest(content)}, indent=1) + "\n")


def read(folder):
    """Returns the Manifest of a folder. Raises UserError where there is none, or it is not as it was written."""
    path = Path(folder, NAME)
    try:
        content = json.loads(path.read_text())
        written = content.pop("sha256")
        version = content.pop("version")
    except FileNotFoundError:
        raise UserError(f"{folder} has no {NAME}, so it is no converted data set, or not yet; {CONVERT}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} cannot be read ({error!r}); {CONVERT}") from None
    if version != VERSION:
        raise UserError(f"{path} has version {version}, this Tandem reads {VERSION}; {CONVERT}")
    if written != _digest({"version": version} | content):
        raise UserError(f"{path} was changed after it was written: its SHA-256 is another; {CONVERT}")
    return Manifest(**content | {name: np.dtype((content[name][0], tuple(content[name][1:]))) for name in NAMES})


CONVERT = "write it with python -m launch.convert_data into an empty folder"


def _digest(content):
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def expect_whole(folder, manifest, on_progress=no_progress):
    """Returns the FileState of each file that the manifest names. Raises UserError for one that is missing or not what it was.

    It calls on_progress(number of files, number of all) for each file.
    """
    states = {}
    for number, (name, (size_bytes, changed_ns, sha256)) in enumerate(manifest.files.items()):
        path = Path(folder, name)
        on_progress(number, len(manifest.files))
        try:
            states[name] = state(path)
            if states[name].size_bytes != size_bytes:
                difference = f"size is {states[name].size_bytes:,} bytes, and was {size_bytes:,}"
            elif states[name].changed_ns != changed_ns and digest(path) != sha256:
                difference = "SHA-256 is another"
            else:
                continue
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror}); {CONVERT}") from None
        raise UserError(f"{path} is not what was written there: its {difference}; {CONVERT}")
    return states


def state(path):
    """Returns the FileState of a file."""
    status = os.stat(path)
    return FileState(status.st_size, status.st_mtime_ns)


def digest(path):
    """Returns the SHA-256 of a file."""
    sha256 = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(2**20):
            sha256.update(part)
    return sha256.hexdigest()
