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
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from common import durable, progress, workloads
from common.command_line import MOST, Bounds
from common.config import Dataset as DatasetName
from common.config import Precision, Settings
from common.data import datasets, folders, formats, image_folders, manifest, stored
from common.data.formats import FORMATS
from common.data.samples import Dataset, InMemory, count_losses
from common.data.storage_use import Use
from common.errors import UserError

# What a folder has until its manifest is written: what is being converted into it.
PLAN = "converting.json"
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Conversion:
    """What to convert, into which format and folder."""

    workload: Annotated[str, tyro.conf.Positional]
    """Workload whose data is converted."""
    data_format: Annotated[Literal[tuple(FORMATS)], tyro.conf.Positional]
    """Format."""
    folder: Annotated[Path, tyro.conf.Positional]
    """Folder to write into: a new or empty one, or one whose conversion was interrupted, which then goes on."""
    dataset: DatasetName | None = None
    """Dataset. Default: the workload's own."""
    data_dir: Path | None = None
    """Folder with the dataset's files, for one that is not installed."""
    tokenizer: Path | None = None
    """Transformers on text: a local tokenizer.json. Default: bytes."""
    precision: Precision = "fp32"
    """Precision of the runs that will read it; samples of bytes or tokens are the same for all."""
    file_size: Annotated[float, Bounds(at_least=0.001, at_most=MOST)] = 64.0
    """MiB of samples in a file at most."""
    copies: Annotated[int, Bounds(at_least=1, at_most=10**6)] = 1
    """Repeat the training samples so many times, to try data that is larger than memory. Runs on them compare with each other only."""


def run(conversion):
    """Converts and returns the exit status. Raises UserError for what cannot be converted, or not into this folder."""
    module = formats.module_of(conversion.data_format)
    shared = ("workload", "dataset", "data_dir", "tokenizer", "precision")
    settings = workloads.resolve(Settings(**{name: getattr(conversion, name) for name in shared}), 1)
    load, identity = _loader(settings)
    with _writing(conversion.folder):
        begun = time.monotonic()
        data = load(progress.reading(functools.partial(print, file=sys.stderr)))
        image_digest = None if data.digest else image_folders.begin_digest(data.train.inputs.shape)
        layout = tuple(np.dtype((array.dtype, array.shape[1:])) for array in (data.train.inputs, data.train.targets))
        plan = {
            "version": manifest.VERSION,
            "data_format": conversion.data_format,
            "source": stored.source_of(settings, settings.dataset) | {"copies": conversion.copies, "identity": identity or data.digest},
            "samples_per_file": max(1, int(conversion.file_size * stored.MIB) // sum(of_row.itemsize for of_row in layout)),
        }
        is_new = _begin(conversion.folder, plan)
        if is_new is None:
            print(f"{conversion.folder} has this data already")
            return 0
        files = _write_all(conversion, module, data, layout, plan["samples_per_file"], image_digest)
        seconds = time.monotonic() - begun if is_new else None
        del plan["version"]
        num_samples = {"train": len(data.train.inputs) * conversion.copies, "test": len(data.test.inputs)}
        digest = data.digest or image_folders.end_digest(image_digest, data.train.targets)
        if conversion.copies > 1:
            digest = hashlib.sha256(f"{conversion.copies} copies of {digest}".encode()).hexdigest()
        written = manifest.Manifest(
            **plan, data_digest=digest, num_samples=num_samples, inputs=layout[0], targets=layout[1], files=files, convert_seconds=seconds
        )
        manifest.write(conversion.folder, written)
        (conversion.folder / PLAN).unlink()
    print(f"{conversion.folder}: {sum(num_samples.values()):,} samples, {written.size_bytes / 1e6:,.1f} MB in {len(files):,} files")
    return 0


def _loader(settings):
    """(a function of on_progress that gives the Dataset of resolved settings, what tells it from other data if it has no digest).

    Images are read when they are written, so their Dataset has none. Files are located now; raises UserError for missing ones.
    """
    if settings.dataset != "imagefolder":
        return datasets.loader(settings), None
    images, labels = image_folders.find_images(settings.data_dir, workloads.workload_of(settings).model)
    described = [(str(path.relative_to(settings.data_dir)), path.stat().st_size, path.stat().st_mtime_ns) for path in images.files]
    identity = hashlib.sha256(json.dumps(described).encode()).hexdigest()
    return lambda _: Dataset(InMemory(images, labels), InMemory(images[[]], labels[:0]), None), identity


@contextlib.contextmanager
def _writing(folder):
    """Context in which this process alone converts into a folder, which is made; errors of the file system become UserErrors."""
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


def _begin(folder, plan):
    """Whether a conversion begins, rather than goes on; None if it is complete. Raises UserError for a folder with anything else."""
    if (folder / manifest.NAME).exists():
        written = manifest.read(folder)
        _expect_same(folder, written._asdict() | {"version": manifest.VERSION}, plan)
        manifest.expect_whole(folder, written)
        # Where the last conversion was killed at its end.
        (folder / PLAN).unlink(missing_ok=True)
        return None
    path = folder / PLAN
    if path.exists():
        try:
            _expect_same(folder, json.loads(path.read_text()), plan)
        except ValueError:
            raise UserError(f"{path} cannot be read as JSON; give another folder, or remove all in this one") from None
        # This process alone writes here.
        for left in folder.glob(f"*.*{durable.PART}"):
            if left.is_file():
                left.unlink()
        return False
    if any(Path(entry.name).suffix != durable.PART for entry in folders.visible(folder)):
        raise UserError(f"{folder} has other files; give a new or an empty folder")
    durable.write_text(path, json.dumps(plan, indent=1) + "\n")
    return True


def _expect_same(folder, written, plan):
    different = [name for name in plan if written.get(name) != plan[name]]
    if different:
        values = ", ".join(f"{name} {written.get(name)} there and {plan[name]} here" for name in different)
        raise UserError(f"{folder} has another conversion ({values}); give another folder")


def _write_all(conversion, module, data, layout, samples_per_file, image_digest):
    """Writes the files that are not there yet, and updates the digest of images if there is one; the `files` of the Manifest."""
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


def _write(path, content):
    """Writes a file, which is whole when it has its name; its entry in the `files` of the Manifest."""
    with durable.replacing(path) as part:
        part.write_bytes(content)
    return _described(path, hashlib.sha256(content).hexdigest())


def _described(path, sha256):
    size_bytes, changed_ns = manifest.state(path)
    return [size_bytes, changed_ns, sha256]
