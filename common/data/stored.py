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
from common.data.samples import Samples
from common.data.stored_samples import MIB, Storage, StoredSamples
from common.errors import UserError
from common.model.weights import DTYPES
from common.process import node_memory
from common.process.ranks import from_environment


def source_of(settings, dataset):
    """Returns what the data of a run is made from; a tokenizer is named by its SHA-256."""
    tokenizer = None if settings.tokenizer is None else manifest.digest(Path(settings.tokenizer))
    return {"workload": settings.workload, "dataset": dataset, "tokenizer": tokenizer}


class StoredDataset(NamedTuple):
    """Training and held-out samples on disk. `digest`: that of the same data in memory; of formats in order, that of their order too."""

    train: Samples
    test: Samples
    digest: str


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
    states = manifest.expect_whole(folder, written, progress.reading(show, label="reading the files again, whose times have changed"))
    if module.IN_ORDER and settings.num_workers > 1:
        raise UserError(f"--num-workers is {settings.num_workers}; {settings.data_format} is read in order, by one worker at most")
    storage = Storage(folder, written, states, module, settings, _budget_bytes(settings))
    train = StoredSamples(storage, "train", np.load(folder / manifest.NUM_LOSSES, allow_pickle=False))
    test = StoredSamples(storage, "test")
    # Under strong scaling the batches of the most ranks that are possible.
    train.plan(max(1, settings.batch_size * settings.accumulate // (1 if settings.scaling == "weak" else from_environment().size)))
    if len(test):
        test.plan(settings.evaluation_batch_size)
    return StoredDataset(train, test, _digest(written, storage.streamed))


def _digest(written, streamed):
    """Returns the digest of a dataset. Another order is another training, which must not be compared, or resumed, as the same."""
    if streamed is None:
        return written.data_digest
    order = f" in files of {streamed.file_size} and buffers of {streamed.buffer_size}"
    return hashlib.sha256((written.data_digest + order).encode()).hexdigest()


def _expect_same(written, settings, source, folder):
    """Raises UserError where a folder has another format, or was made from other data, than the settings say."""
    if written.data_format != formats.written_as(settings.data_format):
        raise UserError(f"--data-dir {folder} has the format {written.data_format}; give --data-format {written.data_format}")
    for name, value in source.items():
        if written.source[name] != value:
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
