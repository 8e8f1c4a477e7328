"""The converted data set of a run: it is checked against the settings, and its samples are read when a batch needs them.

The memory for samples that are read is bounded.
"""

import hashlib
import mmap
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from common import progress
from common.batch_plan import BatchPlan
from common.command_line import flag
from common.config import Settings
from common.data import formats, manifest
from common.data.ahead import cores_of_workers, read_ahead
from common.data.samples import Dataset
from common.data.sharding import Streamed, steps_of_buffer
from common.data.storage_use import Use
from common.errors import UserError
from common.model.weights import DTYPES
from common.process import node_memory
from common.process.ranks import from_environment
from common.workloads import workload_of

MIB = 2**20
# Samples that are shuffled at once where they can be read in order only.
BUFFER_SIZE = 1024
# The number of shards that each rank has open at most, each with one or two files.
MAX_OPEN = 32
# The exceptions of the libraries for a damaged file. OSError has the system's reasons.
DAMAGED = (OSError, EOFError, ValueError, KeyError, IndexError, TypeError, RuntimeError, struct.error)


def source_of(settings: Settings, dataset: str | None) -> dict[str, str | None]:
    """Returns the workload, the dataset and the tokenizer of the data of a run. A tokenizer is named by its SHA-256."""
    tokenizer = None if settings.tokenizer is None else manifest.digest(Path(settings.tokenizer))
    return {"workload": settings.workload, "dataset": dataset, "tokenizer": tokenizer}


def find(settings: Settings, dataset: str, plan: BatchPlan | None) -> Dataset:
    """Returns the Dataset in --data-dir. Raises UserError where it is not whole, not that of the settings, or does not fit into memory."""
    if settings.data_dir is None:
        raise UserError(f"--data-format {settings.data_format} requires --data-dir, the folder that launch.convert_data wrote")
    folder, module = Path(settings.data_dir), formats.module_of(settings.data_format)
    written = manifest.read(folder)
    _expect_data_of(settings, source_of(settings, dataset), written, folder)
    show = partial(print, file=sys.stderr) if from_environment().rank == 0 else lambda _: None
    states = manifest.expect_whole(folder, written, progress.reading(show, label="reading the files again, whose times have changed"))
    if module.IN_ORDER and settings.num_workers > 1:
        raise UserError(f"--num-workers is {settings.num_workers}; {settings.data_format} is read in order, by one worker at most")
    storage = Storage(folder, written, states, module, settings, _budget_bytes(settings))
    train = StoredSamples(storage, "train", np.load(folder / manifest.NUM_LOSSES, allow_pickle=False))
    test = StoredSamples(storage, "test")
    if plan:
        train.plan(plan.local_batch)
    if plan and len(test):
        test.plan(workload_of(settings).evaluation_batch_size)
    digest, streamed = written.data_digest, storage.streamed
    if streamed is not None:
        # Samples in another order are another training: a run must be neither compared with it nor resumed from it.
        order = f" in files of {streamed.file_size} and buffers of {streamed.buffer_size}"
        digest = hashlib.sha256((digest + order).encode()).hexdigest()
    return Dataset(train, test, digest)


def _expect_data_of(settings: Settings, source: dict[str, str | None], written: manifest.Manifest, folder: Path) -> None:
    """Raises UserError where a folder has another format than that of the settings, or was made from other data than their source."""
    if written.data_format != settings.data_format:
        raise UserError(f"--data-dir {folder} has the format {written.data_format}; give --data-format {written.data_format}")
    for name, value in source.items():
        if written.source[name] != value:
            values = " (another file)" if name == "tokenizer" else f" {written.source[name]}, and this run has {value}"
            raise UserError(f"--data-dir {folder} was converted with {flag(name)}{values}; convert the data of this run into a folder")
    dtype = np.dtype(DTYPES[settings.precision])
    if written.inputs.base.kind == "f" and written.inputs.base != dtype:
        raise UserError(
            f"--data-dir {folder} has samples of {written.inputs.base}, and --precision {settings.precision} needs {dtype}; "
            f"convert them with --precision {settings.precision}"
        )


def _budget_bytes(settings: Settings) -> int:
    """Returns the memory of a rank for samples that are read."""
    if settings.data_budget is not None:
        return int(settings.data_budget * MIB)
    return int(node_memory.total() / 4 / from_environment().local_size)


class Storage(NamedTuple):
    """A converted data set, and how a run with these settings reads it.

    `states` are those of its files when the run started. `module` is that of its format. `budget_bytes` are for samples that are read.
    """

    folder: Path
    written: manifest.Manifest
    states: dict[str, manifest.FileState]
    module: ModuleType
    settings: Settings
    budget_bytes: int

    @property
    def streamed(self) -> Streamed | None:
        """How samples are shuffled that can be read in order only; None for others."""
        return Streamed(self.written.samples_per_file, BUFFER_SIZE) if self.module.IN_ORDER else None

    @property
    def layout(self) -> formats.Layout:
        return self.written.inputs, self.written.targets

    def paths(self) -> list[Path]:
        """Returns the files of all samples."""
        return [self.folder / name for name in self.written.files]


class ReadingPlan(NamedTuple):
    """How batches are read: `num_at_once` of them at once, `num_ahead` times as many ahead, from `max_open` open shards at most."""

    num_at_once: int
    num_ahead: int
    max_open: int


class StoredSamples:
    """One part of a converted data set, `train` or `test`. `use` counts the cost of reading it."""

    def __init__(self, storage: Storage, part: str, num_losses: np.ndarray | None = None) -> None:
        self.storage, self.streamed, self.use = storage, storage.streamed, Use()
        self._part, self._num_losses = part, num_losses

    def __len__(self) -> int:
        return self.storage.written.num_samples[self._part]

    @property
    def num_losses(self) -> np.ndarray:
        """The number of targets of each sample that count, which only training samples have."""
        assert self._num_losses is not None, f"the samples of {self._part} have no numbers of losses"
        return self._num_losses

    def batches(self, indices: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the inputs and targets of the samples in each row of indices, read ahead by the workers.

        The files are opened anew, and the states of those that were read are compared at the end. Raises UserError for damaged files.
        """
        num_at_once, num_ahead, max_open = self.plan(indices.shape[1])
        settings = self.storage.settings
        opened: set[Path] = set()
        shard = lru_cache(max_open)(partial(self._open, opened))
        parts = [indices[first : first + num_at_once] for first in range(0, len(indices), num_at_once)]
        cores = cores_of_workers(settings.threads, settings.bind)
        steps_of_parts = read_ahead(partial(self._read, shard), parts, settings.num_workers, num_ahead, cores)
        while True:
            begun = time.perf_counter()
            steps = next(steps_of_parts, None)
            self.use.wait_seconds += time.perf_counter() - begun
            if steps is None:
                break
            for arrays in steps:
                self.use.num_steps += 1
                yield arrays
        for stem in opened:
            self._expect_unchanged(stem)

    def plan(self, local_batch: int) -> ReadingPlan:
        """Plans the reading of batches of this size. Raises UserError where the batches in memory exceed the budget.

        Where samples can be read in order only, the batches of a buffer are read at once.
        """
        settings, budget_bytes, open_bytes = self.storage.settings, self.storage.budget_bytes, self.storage.module.OPEN_BYTES
        num_at_once = 1 if self.streamed is None else steps_of_buffer(self.streamed, local_batch)
        num_ahead = -(-settings.num_workers * settings.prefetch // num_at_once)
        # One batch is in use, one is next, and a batch that is being read is in memory twice, in the order of the files too.
        if self.streamed is None:
            num_held = num_ahead + 2 + max(1, settings.num_workers)
        else:
            num_held = (num_ahead + 2 if settings.num_workers else 1) * num_at_once + 2
        batch_bytes = num_held * local_batch * sum(row_type.itemsize for row_type in self.storage.layout)
        # A worker opens a shard before it closes the one that is replaced.
        num_replaced = max(1, settings.num_workers)
        smallest_bytes = batch_bytes + (1 + num_replaced) * open_bytes
        if smallest_bytes > budget_bytes:
            fewer = "lower --prefetch or --num-workers, " if settings.num_workers else ""
            raise UserError(
                f"{num_held} batches of {local_batch} samples, which are in memory at once, take {smallest_bytes / MIB:,.1f} "
                f"MiB, and --data-budget is {budget_bytes / MIB:,.1f} MiB; {fewer}take smaller batches, or raise it"
            )
        return ReadingPlan(num_at_once, num_ahead, min(MAX_OPEN, (budget_bytes - batch_bytes) // open_bytes - num_replaced))

    def _open(self, opened: set[Path], number: int) -> formats.Shard:
        stem = self._stem(number)
        opened.add(stem)
        self._expect_unchanged(stem)
        return self.storage.module.Shard(stem, self.storage.layout, self.use)

    def _stem(self, number: int) -> Path:
        """Returns the path with which the names of a shard's files begin."""
        return self.storage.folder / f"{self._part}-{number:05d}"

    def _expect_unchanged(self, stem: Path) -> None:
        """Raises UserError where a file of a shard has changed since the run started."""
        for name in (name for name in self.storage.states if name.startswith(f"{stem.name}.")):
            path = self.storage.folder / name
            try:
                changed = manifest.state(path) != self.storage.states[name]
            except OSError as error:
                raise UserError(f"{path} cannot be read any more ({error.strerror}); {manifest.CONVERT}") from None
            if changed:
                raise UserError(f"{path} has changed since the run started; leave converted data as it is, or {manifest.CONVERT}")

    def _read(self, shard: Callable[[int], formats.Shard], indices: np.ndarray) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        """Reads the inputs and targets of all rows of the indices in the order of the files.

        Where samples can be read in order only, the rows are copied one by one out of the buffer that has them all.
        """
        sample_numbers, places = np.unique(indices, return_inverse=True)
        samples_per_file = self.storage.written.samples_per_file
        shard_numbers = sample_numbers // samples_per_file
        rows = inputs, targets = empty_rows(self.storage.layout, len(sample_numbers))
        for number in np.unique(shard_numbers):
            part = slice(*np.searchsorted(shard_numbers, (number, number + 1)))
            try:
                shard(int(number)).read(sample_numbers[part] - number * samples_per_file, [array[part] for array in rows])
            except DAMAGED as error:
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                raise UserError(f"{self._stem(number)}.* cannot be read ({reason}); {manifest.CONVERT}") from None
        self.use.read(sum(array.nbytes for array in rows))
        places = places.reshape(indices.shape)
        if self.streamed is not None:
            return ((inputs[positions], targets[positions]) for positions in places)
        steps = [empty_rows(self.storage.layout, len(positions)) for positions in places]
        for step, positions in zip(steps, places, strict=True):
            for array, out in zip(rows, step, strict=True):
                np.take(array, positions, axis=0, out=out, mode="clip")
        return steps


def empty_rows(layout: formats.Layout, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns arrays for the inputs and targets of so many samples."""
    inputs, targets = (_empty(row_type, num_rows) for row_type in layout)
    return inputs, targets


def _empty(row_type: np.dtype, num_rows: int) -> np.ndarray:
    """Returns an array in memory that goes back to the system with it. The C library would keep fragments of it for each thread."""
    mapped = mmap.mmap(-1, num_rows * row_type.itemsize)
    return np.frombuffer(mapped, row_type.base).reshape(num_rows, *row_type.shape)
