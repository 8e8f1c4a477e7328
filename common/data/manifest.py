"""The manifest of a converted data set: its files, and how a run knows that they have not changed (common/README.md, Trust)."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common import durable
from common.data.formats import NAMES
from common.errors import UserError
from common.progress import OnProgress, no_progress

NAME = "manifest.json"
VERSION = 1
NUM_LOSSES = "train.num_losses.npy"


class FileState(NamedTuple):
    """The size of a file, and the time at which it was changed."""

    size_bytes: int
    changed_ns: int


class FileEntry(NamedTuple):
    """A file as it was written."""

    size_bytes: int
    changed_ns: int
    sha256: str


class Manifest(NamedTuple):
    """The content of a folder.

    `source` has the `workload`, the `dataset` and the `tokenizer` that the data was made from; `copies`, how many times its training
    samples follow each other; and `identity`, which differs from that of other data of the same name. `data_digest` is the digest of the
    dataset that a run records. `num_samples` has the parts `train` and `test`. `inputs` and `targets` are NumPy's types of those of a
    sample, with their shapes. `files` are by name. `convert_seconds` is None if the conversion was interrupted.
    """

    data_format: str
    source: dict[str, str | int | None]
    data_digest: str
    num_samples: dict[str, int]
    samples_per_file: int
    inputs: np.dtype
    targets: np.dtype
    files: dict[str, FileEntry]
    convert_seconds: float | None

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return sum(entry.size_bytes for entry in self.files.values())


def write(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest, which makes a data set of the folder."""
    row_types = zip(NAMES, (manifest.inputs, manifest.targets), strict=True)
    content = {"version": VERSION} | manifest._asdict() | {name: [row_type.base.str, *row_type.shape] for name, row_type in row_types}
    durable.write_text(folder / NAME, json.dumps(content | {"sha256": _digest(content)}, indent=1) + "\n")


def read(folder: Path) -> Manifest:
    """Reads the manifest of a folder. Raises UserError where there is none, or it is not as it was written."""
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
    files = {name: FileEntry(*entry) for name, entry in content["files"].items()}
    row_types = {name: np.dtype((content[name][0], tuple(content[name][1:]))) for name in NAMES}
    return Manifest(**content | row_types | {"files": files})


CONVERT = "write it with python -m launch.convert_data into an empty folder"


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def expect_whole(folder: Path, manifest: Manifest, on_progress: OnProgress = no_progress) -> dict[str, FileState]:
    """Returns the states of the files of the manifest by name. Raises UserError for a file that is missing or has changed.

    It calls `on_progress` for each file.
    """
    states = {}
    for number, (name, entry) in enumerate(manifest.files.items()):
        path = Path(folder, name)
        on_progress(number, len(manifest.files))
        try:
            states[name] = state(path)
            if states[name].size_bytes != entry.size_bytes:
                difference = f"size is {states[name].size_bytes:,} bytes, and was {entry.size_bytes:,}"
            elif states[name].changed_ns != entry.changed_ns and digest(path) != entry.sha256:
                difference = "SHA-256 is another"
            else:
                continue
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror}); {CONVERT}") from None
        raise UserError(f"{path} is not what was written there: its {difference}; {CONVERT}")
    return states


def state(path: Path) -> FileState:
    status = os.stat(path)
    return FileState(status.st_size, status.st_mtime_ns)


def digest(path: Path) -> str:
    """Returns the SHA-256 of a file."""
    sha256 = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(2**20):
            sha256.update(part)
    return sha256.hexdigest()
