"""The cost of reading a converted data set, which is counted on each rank and added to the record."""

import os
import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from common.config import Settings
from common.data.samples import Samples
from common.meter import Meter
from common.record.parts import Reading
from common.trainer import Trainer, by_rank

PROCESS_IO = Path("/proc/self/io")


class Use:
    """Counts the files that are opened, the bytes of the samples that are read, and the seconds for which training waits for its steps.

    Only the thread of training waits, and counts steps.
    """

    def __init__(self) -> None:
        self.num_opens = self.size_bytes = self.num_steps = 0
        self.wait_seconds = 0.0
        self._lock = threading.Lock()

    def opened(self, num_files: int) -> None:
        with self._lock:
            self.num_opens += num_files

    def read(self, size_bytes: int) -> None:
        with self._lock:
            self.size_bytes += size_bytes


class Recorder:
    """Drops page caches as the settings ask, and makes the record's `reading`. For data in memory it does nothing.

    All ranks make the same calls. `clock` is that of the run.
    """

    def __init__(self, trainer: Trainer, samples: Samples, settings: Settings, clock: Meter) -> None:
        self._trainer, self._samples, self._storage = trainer, samples, samples.storage
        self._clock, self._when = clock, settings.drop_caches
        self._before = process_io()

    def begin_epoch(self) -> None:
        """Drops the page cache of all files before the first epoch, or before each."""
        if self._storage and self._when != "none":
            self._when = "none" if self._when == "once" else self._when
            with self._clock.pause("checks"):
                if self._trainer.ranks.local_rank == 0:
                    drop_caches(self._storage.paths())
                # Barrier: the pages that other ranks have read already would be dropped.
                self._trainer.sum(np.zeros(1))

    def reading(self) -> Reading | None:
        """Returns what the ranks have read so far; None for data in memory. All ranks call this."""
        storage, use = self._storage, self._samples.use
        if storage is None or use is None:
            return None
        before, now = self._before, process_io()
        read, from_disk = (now[key] - before[key] if before and now else np.nan for key in ("rchar", "read_bytes"))
        return Reading(
            sample_order="global" if self._samples.streamed is None else "files",
            num_steps=use.num_steps,
            wait_seconds_by_rank=by_rank(self._trainer, use.wait_seconds).tolist(),
            sample_bytes_by_rank=by_rank(self._trainer, use.size_bytes).astype(int).tolist(),
            num_opens_by_rank=by_rank(self._trainer, use.num_opens).astype(int).tolist(),
            read_bytes_by_rank=self._known_by_rank(read),
            disk_bytes_by_rank=self._known_by_rank(from_disk),
            budget_bytes=storage.budget_bytes,
            stored_bytes=storage.written.size_bytes,
            convert_seconds=storage.written.convert_seconds,
        )

    def _known_by_rank(self, value: float) -> list[int | None]:
        """Gathers the value of each rank; NaN becomes None."""
        return [None if np.isnan(number) else int(number) for number in by_rank(self._trainer, value)]


def process_io() -> dict[str, int] | None:
    """Reads the numbers of /proc/self/io, or None where Linux does not have it.

    `rchar` are the bytes that this process has read, and `read_bytes` are those of them that came from disks.
    """
    try:
        return {name: int(value) for name, value in (line.split(": ") for line in PROCESS_IO.read_text().splitlines())}
    except OSError:
        return None


def drop_caches(paths: Iterable[Path]) -> None:
    """Takes the files out of the page cache, unless another process maps them (posix_fadvise(2)). This needs no privilege."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
