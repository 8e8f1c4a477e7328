"""The converted data set of a run: that it is there whole, and is that of the settings."""

import hashlib
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common import progress
from common.command_line import flag
from common.data import formats, manifest
from common.data.ahead import cores_of_workers
from common.data.samples import Samples
from common.data.sharding import Streamed
from common.data.storage_use import Use
from common.data.stored_samples import MIB, Reader, StoredSamples
from common.errors import UserError
from common.model.weights import DTYPES
from common.process import node_memory
from common.process.ranks import from_environment

# Samples that are shuffled at once where they can be read in order only.
BUFFER_SIZE = 1024


class Source(NamedTuple):
    """What a data set was made from. `copies`: how often its training samples follow each other in the converted one.

    `identity`: tells the data from other data of that name; None in a run, which does not see it.
    """

    workload: str
    dataset: str
    tokenizer: str | None
    copies: int = 1
    identity: str | None = None


def source_of(settings, dataset, copies=1):
    """Returns the Source of a run's data, whose tokenizer is named by its SHA-256."""
    tokenizer = None if settings.tokenizer is None else manifest.digest(Path(settings.tokenizer))
    return Source(settings.workload, dataset, tokenizer, copies)


class StoredDataset(NamedTuple):
    """Training and held-out samples on disk. `digest`: that of the same data in memory; of formats in order, that of their order too."""

    train: Samples
    test: Samples
    digest: str
    storage: "Storage"


class Storage(NamedTuple):
    """Where stored samples lie: what the record needs, and the page cache. `use`: counts what reading the training samples takes."""

    folder: Path
    written: manifest.Manifest
    budget_bytes: int
    use: Use

    def paths(self):
        """Yields the files of all samples, one by one also where they lie in folders."""
        for name in self.written.files:
            path = Path(self.folder, name)
            yield from path.iterdir() if path.is_dir() else [path]


def find(settings, dataset):
    """Returns the StoredDataset in --data-dir. Raises UserError where it is not there whole, or not that of the settings."""
    if settings.data_dir is None:
        raise UserError(f"--data-format {settings.data_format} requires --data-dir, the folder that launch.convert_data wrote")
    folder, module = Path(settings.data_dir), formats.module_of(settings.data_format)
    if expect_usable := getattr(module, "expect_usable", None):
        expect_usable(settings.data_format)
    written = manifest.read(folder)
    _expect_same(written, settings, source_of(settings, dataset), folder)
    show = partial(print, file=sys.stderr) if from_environment().rank == 0 else lambda _: None
    states = manifest.expect_whole(folder, written, progress.reading(show, what="reading the files again, whose times have changed"))
    budget_bytes = _budget_bytes(settings)
    reader = Reader(
        settings.num_workers,
        settings.num_workers * settings.prefetch,
        partial(cores_of_workers, settings.threads, settings.bind),
        budget_bytes,
    )
    if module.IN_ORDER and settings.num_workers > 1:
        raise UserError(f"--num-workers is {settings.num_workers}; {settings.data_format} is read in order, by one worker at most")
    streamed = Streamed(written.samples_per_file, BUFFER_SIZE) if module.IN_ORDER else None
    num_losses = np.load(folder / manifest.NUM_LOSSES, allow_pickle=False)
    parts = [
        StoredSamples(folder, part, written, states, module, reader, streamed, Use(), losses)
        for part, losses in (("train", num_losses), ("test", None))
    ]
    _expect_room(parts, settings)
    storage = Storage(folder, written, budget_bytes, parts[0].use)
    return StoredDataset(*parts, _digest(written, streamed), storage)


def _digest(written, streamed):
    """Returns the digest of a dataset. Another order is another training, which must not be compared, or resumed, as the same."""
    order = "" if streamed is None else f" in files of {streamed.file_size} and buffers of {streamed.buffer_size}"
    return hashlib.sha256((written.data_digest + order).encode()).hexdigest() if order else written.data_digest


def _expect_same(written, settings, source, folder):
    """Raises UserError where a folder has another format, or was made from other data, than the settings say."""
    if written.data_format != formats.written_as(settings.data_format):
        raise UserError(f"--data-dir {folder} has the format {written.data_format}; give --data-format {written.data_format}")
    for name, value in source._asdict().items():
        if name not in ("copies", "identity") and written.source[name] != value:
            values = " (another file)" if name == "tokenizer" else f" {written.source[name]}, and this run has {value}"
            raise UserError(f"--data-dir {folder} was converted with {flag(name)}{values}; convert the data of this run into a folder")
    of_run = np.dtype(DTYPES[settings.precision])
    if written.inputs.dtype.kind == "f" and written.inputs.dtype != of_run:
        raise UserError(
            f"--data-dir {folder} has samples of {written.inputs.dtype}, and --precision {settings.precision} needs {of_run}; "
            f"convert them with --precision {settings.precision}"
        )


def _budget_bytes(settings):
    """Returns the memory of a rank for samples that are read."""
    if settings.data_budget is not None:
        return int(settings.data_budget * MIB)
    return int(node_memory.total() / 4 / from_environment().local_size)


def _expect_room(parts, settings):
    """Raises UserError for a budget that the settings' batches exceed; under strong scaling those of the most ranks that are possible."""
    shards = 1 if settings.scaling == "weak" else from_environment().size
    train, test = parts
    train.expect_room(max(1, settings.batch_size * settings.accumulate // shards))
    if len(test):
        test.expect_room(settings.evaluation_batch_size)
