"""Writes the data of a workload into a folder in a format from which runs read it sample by sample (--data-format)."""

import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

from common import durable, progress, workloads
from common.command_line import MOST, Bounds
from common.config import Dataset as DatasetName
from common.config import FileFormat, Precision, Settings
from common.data import datasets, folders, formats, image_folders, manifest, stored
from common.data.formats import Layout
from common.data.manifest import FileEntry
from common.data.samples import Dataset, InMemory, count_losses
from common.data.storage_use import Use
from common.errors import UserError
from common.model.resnet import ResNet50
from common.progress import OnProgress

# Describes what is being converted into a folder, until its manifest is written.
PLAN = "converting.json"
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The entries of the manifest that are known before anything is converted.
Plan = dict[str, Any]


@dataclass(frozen=True)
class Conversion:
    """What to convert, into which format and folder."""

    workload: Annotated[str, tyro.conf.Positional]
    """Workload whose data is converted."""
    data_format: Annotated[FileFormat, tyro.conf.Positional]
    """Format."""
    folder: Annotated[Path, tyro.conf.Positional]
    """Folder to write into: a new or empty one, or one whose conversion was interrupted, which then goes on."""
    dataset: DatasetName | None = None  # pyright: ignore[reportInvalidTypeForm]
    """Dataset. Default: the workload's own."""
    data_dir: Path | None = None
    """Folder with the dataset's files, for one that is not installed."""
    tokenizer: Path | None = None
    """Transformers on text: a local tokenizer.json. Default: bytes."""
    precision: Precision = "fp32"  # pyright: ignore[reportInvalidTypeForm]
    """Precision of the runs that will read it; samples of bytes or tokens are the same for all."""
    file_size: Annotated[float, Bounds(at_least=0.001, at_most=MOST)] = 64.0
    """MiB of samples in a file at most."""
    copies: Annotated[int, Bounds(at_least=1, at_most=10**6)] = 1
    """Repeat the training samples so many times, to try data that is larger than memory. Runs on them compare with each other only."""


class Part(NamedTuple):
    """The samples of a part. Images are read when they are written."""

    inputs: np.ndarray | image_folders.Images
    targets: np.ndarray


class Data(NamedTuple):
    """The samples to convert. The digest is empty for images, whose values are not read before they are written."""

    train: Part
    test: Part
    digest: str


def run(conversion: Conversion) -> int:
    """Converts and returns the exit status. Raises UserError for what cannot be converted, or not into this folder."""
    module = formats.module_of(conversion.data_format)
    shared = ("workload", "dataset", "data_dir", "tokenizer", "precision")
    settings = workloads.resolve(Settings(**{name: getattr(conversion, name) for name in shared}), 1)
    load, identity = _loader(settings)
    with _writing(conversion.folder):
        begun = time.monotonic()
        data = load(progress.reading(functools.partial(print, file=sys.stderr)))
        image_digest = None if data.digest else image_folders.begin_digest(data.train.inputs.shape)
        layout = _row_type(data.train.inputs), _row_type(data.train.targets)
        plan = {
            "version": manifest.VERSION,
            "data_format": conversion.data_format,
            "source": stored.source_of(settings, settings.dataset) | {"copies": conversion.copies, "identity": identity or data.digest},
            "samples_per_file": max(1, int(conversion.file_size * stored.MIB) // sum(row_type.itemsize for row_type in layout)),
        }
        is_new = _begin(conversion.folder, plan)
        if is_new is None:
            print(f"{conversion.folder} has this data already")
            return 0
        files = _write_all(conversion, module, data, layout, plan["samples_per_file"], image_digest)
        seconds = time.monotonic() - begun if is_new else None
        del plan["version"]
        num_samples = {"train": len(data.train.inputs) * conversion.copies, "test": len(data.test.inputs)}
        digest = image_folders.end_digest(image_digest, data.train.targets) if image_digest else data.digest
        if conversion.copies > 1:
            digest = hashlib.sha256(f"{conversion.copies} copies of {digest}".encode()).hexdigest()
        written = manifest.Manifest(
            **plan, data_digest=digest, num_samples=num_samples, inputs=layout[0], targets=layout[1], files=files, convert_seconds=seconds
        )
        manifest.write(conversion.folder, written)
        (conversion.folder / PLAN).unlink()
    print(f"{conversion.folder}: {sum(num_samples.values()):,} samples, {written.size_bytes / 1e6:,.1f} MB in {len(files):,} files")
    return 0


def _loader(settings: Settings) -> tuple[Callable[[OnProgress], Data], str | None]:
    """Returns a function that loads the data of resolved settings, and the identity of data that has no digest.

    Files are located now; raises UserError for missing ones.
    """
    if settings.dataset != "imagefolder" or settings.data_dir is None:
        load = datasets.loader(settings)
        return lambda on_progress: _in_memory(load(on_progress)), None
    model = workloads.workload_of(settings).model
    assert isinstance(model, ResNet50), "only ResNet-50 is trained on folders of images"
    images, labels = image_folders.find_images(settings.data_dir, model)
    described = [(str(path.relative_to(settings.data_dir)), path.stat().st_size, path.stat().st_mtime_ns) for path in images.files]
    identity = hashlib.sha256(json.dumps(described).encode()).hexdigest()
    return lambda _: Data(Part(images, labels), Part(images[[]], labels[:0]), ""), identity


def _in_memory(dataset: Dataset) -> Data:
    train, test = dataset.train, dataset.test
    assert isinstance(train, InMemory), "data is converted from memory"
    assert isinstance(test, InMemory), "data is converted from memory"
    return Data(Part(train.inputs, train.targets), Part(test.inputs, test.targets), dataset.digest)


def _row_type(array: np.ndarray | image_folders.Images) -> np.dtype:
    return np.dtype((array.dtype, array.shape[1:]))


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Within this context this process alone converts into a folder, which it makes; errors of the file system become UserErrors."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)
    except BlockingIOError:
        raise UserError(f"another process is converting into {folder}; wait for it, or give another folder") from None
    except OSError as error:
        if error.errno in NO_SPACE:
            raise UserError(f"{folder}: {error.strerror}; make room and give the same command again, which goes on from here") from None
        raise UserError(f"cannot write to {folder} ({error.strerror or error}); give another folder") from None


def _begin(folder: Path, plan: Plan) -> bool | None:
    """Returns whether a conversion begins, rather than goes on; None if it is complete. Raises UserError for any other folder."""
    if (folder / manifest.NAME).exists():
        written = manifest.read(folder)
        _expect_same(folder, written._asdict() | {"version": manifest.VERSION}, plan)
        manifest.expect_whole(folder, written)
        # The plan stays where the last conversion was killed at its end.
        (folder / PLAN).unlink(missing_ok=True)
        return None
    path = folder / PLAN
    if path.exists():
        try:
            _expect_same(folder, json.loads(path.read_text()), plan)
        except ValueError:
            raise UserError(f"{path} cannot be read as JSON; give another folder, or remove all in this one") from None
        # This process alone writes here.
        for part in folder.glob(f"*.*{durable.PART}"):
            if part.is_file():
                part.unlink()
        return False
    if any(Path(entry.name).suffix != durable.PART for entry in folders.visible(folder)):
        raise UserError(f"{folder} has other files; give a new or an empty folder")
    durable.write_text(path, json.dumps(plan, indent=1) + "\n")
    return True


def _expect_same(folder: Path, written: Plan, plan: Plan) -> None:
    different = [name for name in plan if written.get(name) != plan[name]]
    if different:
        values = ", ".join(f"{name} {written.get(name)} there and {plan[name]} here" for name in different)
        raise UserError(f"{folder} has another conversion ({values}); give another folder")


def _write_all(
    conversion: Conversion, module: ModuleType, data: Data, layout: Layout, samples_per_file: int, image_digest: "hashlib._Hash | None"
) -> dict[str, FileEntry]:
    """Writes the missing files, and updates the digest of images if there is one; returns the `files` of the Manifest."""
    num_losses = np.tile(count_losses(data.train.targets).astype(np.int32), conversion.copies)
    files = {manifest.NUM_LOSSES: _write(conversion.folder / manifest.NUM_LOSSES, formats.module_of("npy").as_npy(num_losses))}
    parts = {"train": (data.train.inputs, data.train.targets, conversion.copies), "test": (data.test.inputs, data.test.targets, 1)}
    todo = [
        (part, number, inputs, targets, np.arange(first, min(first + samples_per_file, len(inputs) * copies)))
        for part, (inputs, targets, copies) in parts.items()
        for number, first in enumerate(range(0, len(inputs) * copies, samples_per_file))
    ]
    on_progress = progress.reading(functools.partial(print, file=sys.stderr), label="converting")
    for num_done, (part, number, inputs, targets, samples) in enumerate(todo):
        on_progress(num_done, len(todo))
        stem = conversion.folder / f"{part}-{number:05d}"
        present = sorted(path for path in conversion.folder.glob(f"{stem.name}.*") if path.suffix != durable.PART)
        if len(present) == module.NUM_FILES:
            files |= {path.name: _described(path, manifest.digest(path)) for path in present}
            rows, _ = arrays = stored.empty_rows(layout, len(samples))
            module.Shard(stem, layout, Use()).read(np.arange(len(samples)), arrays)
        else:
            rows = inputs[samples % len(inputs)]
            for end, content in module.encode(rows, targets[samples % len(inputs)]).items():
                path = conversion.folder / f"{stem.name}{end}"
                files[path.name] = _write(path, content)
        if part == "train" and image_digest:
            image_digest.update(np.ascontiguousarray(rows[samples < len(inputs)]).data)
    return files


def _write(path: Path, content: bytes) -> FileEntry:
    """Writes a file, which is complete when it has its name; returns its entry in the `files` of the Manifest."""
    with durable.replacing(path) as part:
        part.write_bytes(content)
    return _described(path, hashlib.sha256(content).hexdigest())


def _described(path: Path, sha256: str) -> FileEntry:
    return FileEntry(*manifest.state(path), sha256)
