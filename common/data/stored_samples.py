"""The samples of a converted data set, read when a batch needs them, in memory that has a bound."""

import mmap
import struct
import tarfile
import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from common.data import manifest
from common.data.ahead import read_ahead
from common.data.sharding import steps_of_buffer
from common.errors import UserError

MIB = 2**20
# Of each rank's shards, each of which has a file open or two.
MAX_OPEN = 32
# What the libraries raise for a file that is damaged. OSError has the system's reasons.
DAMAGED = (OSError, EOFError, ValueError, KeyError, IndexError, TypeError, RuntimeError, struct.error, tarfile.TarError)


class Reader(NamedTuple):
    """How the samples of a run are read in the background. `num_ahead`: batches for all workers together."""

    num_workers: int
    num_ahead: int
    cores: Callable
    budget_bytes: int


class StoredSamples:
    """One part of a converted data set, `train` or `test`."""

    def __init__(self, folder, part, written, states, module, reader, streamed, use, num_losses):
        self.num_losses, self.streamed, self.use = num_losses, streamed, use
        self._folder, self._part, self._written, self._states = folder, part, written, states
        self._module, self._reader = module, reader
        self._layout = (written.inputs, written.targets)

    def __len__(self):
        return self._written.num_samples[self._part]

    def batches(self, indices):
        """Yields (inputs, targets) of the samples in each row of indices, read ahead by the workers. Raises UserError for damaged files.

        The files are opened anew, and those that were read are looked at again in the end: they must be what they were.
        """
        local_batch = indices.shape[1]
        self.expect_room(local_batch)
        opened = set()
        shard = lru_cache(self._max_open(local_batch))(partial(self._open, opened))
        num_at_once = self._num_at_once(local_batch)
        parts = [indices[first : first + num_at_once] for first in range(0, len(indices), num_at_once)]
        cores = self._reader.cores() if self._reader.num_workers else None
        num_ahead = self._num_ahead(local_batch)
        steps_of_parts = read_ahead(partial(self._read, shard), parts, self._reader.num_workers, num_ahead, cores)
        while True:
            begun = time.perf_counter()
            of_steps = next(steps_of_parts, None)
            self.use.waited(time.perf_counter() - begun)
            if of_steps is None:
                break
            for arrays in of_steps:
                self.use.num_steps += 1
                yield arrays
        for stem in opened:
            self._expect_unchanged(stem)

    def expect_room(self, local_batch):
        """Raises UserError where what is held at once of batches of this size exceeds the budget."""
        num_held, needed = self._num_held(local_batch), self._needed_bytes(local_batch) + self._module.OPEN_BYTES
        if needed > self._reader.budget_bytes:
            fewer = "lower --prefetch or --num-workers, " if self._reader.num_workers else ""
            raise UserError(
                f"{num_held} batches of {local_batch} samples, which are in memory at once, take {needed / MIB:,.1f} MiB, and "
                f"--data-budget is {self._reader.budget_bytes / MIB:,.1f} MiB; {fewer}take smaller batches, or raise it"
            )

    def _max_open(self, local_batch):
        """Returns how many shards may be open at once: what the batches leave of the budget."""
        left = self._reader.budget_bytes - self._needed_bytes(local_batch)
        return min(MAX_OPEN, max(1, left // max(1, self._module.OPEN_BYTES)))

    def _needed_bytes(self, local_batch):
        """Returns the bytes of the samples that are in memory at once."""
        return self._num_held(local_batch) * local_batch * sum(of_row.size_bytes for of_row in self._layout)

    def _num_held(self, local_batch):
        """Counts the batches in memory at once. One is in use, one is next, and each that is being read is there in file order too."""
        num_ahead = self._num_ahead(local_batch)
        if self.streamed is None:
            return num_ahead + 2 + max(1, self._reader.num_workers)
        return (num_ahead + 2 if self._reader.num_workers else 1) * self._num_at_once(local_batch) + 2

    def _num_at_once(self, local_batch):
        """Counts the batches that are read at once: those of a buffer where samples can be read in order only."""
        return 1 if self.streamed is None else steps_of_buffer(self.streamed, local_batch)

    def _num_ahead(self, local_batch):
        return -(-self._reader.num_ahead // self._num_at_once(local_batch))

    def _open(self, opened, number):
        """Opens a shard."""
        stem = f"{self._part}-{number:05d}"
        opened.add(stem)
        self._expect_unchanged(stem)
        return self._module.Shard(self._folder / stem, self._layout, self.use)

    def _expect_unchanged(self, stem):
        """Raises UserError where a file of a shard is not what it was when the run started."""
        for name in (name for name in self._states if name.startswith(f"{stem}.")):
            path = self._folder / name
            try:
                changed = manifest.state(path) != self._states[name]
            except OSError as error:
                raise UserError(f"{path} cannot be read any more ({error.strerror}); {manifest.CONVERT}") from None
            if changed:
                raise UserError(f"{path} has changed since the run started; leave converted data as it is, or {manifest.CONVERT}")

    def _read(self, shard, indices):
        """Reads (inputs, targets) of each row of the indices in the order of the files; of a buffer they are taken out one by one."""
        sample_numbers, places = np.unique(indices, return_inverse=True)
        numbers = sample_numbers // self._written.samples_per_file
        rows = (empty_rows if self.streamed is None else _rows_of_buffer)(self._layout, len(sample_numbers))
        of_all_ranks = getattr(self._module, "of_all_ranks", np.unique)
        for number in of_all_ranks(np.unique(numbers)):
            part = slice(*np.searchsorted(numbers, (number, number + 1)))
            try:
                of_shard = sample_numbers[part] - number * self._written.samples_per_file
                shard(int(number)).read(of_shard, [array[part] for array in rows])
            except DAMAGED as error:
                where = self._folder / f"{self._part}-{number:05d}"
                raise UserError(f"{where}.* cannot be read ({_one_line(error)}); {manifest.CONVERT}") from None
        self.use.read(sum(array.nbytes for array in rows))
        of_steps = ([array[mine] for array in rows] for mine in places.reshape(indices.shape))
        return list(of_steps) if self.streamed is None else of_steps


def empty_rows(layout, num_rows):
    """Arrays for the inputs and targets of so many samples."""
    return [np.empty((num_rows, *of_row.shape), of_row.dtype) for of_row in layout]


def _rows_of_buffer(layout, num_rows):
    """Returns `empty_rows` in memory that goes back to the system with them: the C library would keep fragments of it for each thread."""
    rows = []
    for of_row in layout:
        mapped = mmap.mmap(-1, num_rows * of_row.size_bytes)
        rows.append(np.frombuffer(mapped, of_row.dtype).reshape(num_rows, *of_row.shape))
    return rows


def _one_line(error):
    return " ".join(f"{type(error).__name__}: {error}".split())
