"""What reading a converted data set takes: counted on each rank, and added to the record."""

import os
import threading
from pathlib import Path

import numpy as np

from common.trainer import by_rank

PROCESS_IO = Path("/proc/self/io")


class Use:
    """Counts what reading takes: `num_opens` files, `size_bytes` of samples, and the `wait_seconds` of training in `num_steps` steps.

    Only the thread of training waits, and counts steps.
    """

    def __init__(self):
        self.num_opens = self.size_bytes = self.num_steps = 0
        self.wait_seconds = 0.0
        self._lock = threading.Lock()

    def opened(self, num_files):
        with self._lock:
            self.num_opens += num_files

    def read(self, size_bytes):
        with self._lock:
            self.size_bytes += size_bytes


class Recorder:
    """Drops page caches as the settings ask, and makes the record's `reading`. All ranks make the same calls; `clock` is that of the run.

    It does nothing for data in memory.
    """

    def __init__(self, trainer, samples, settings, clock):
        self._trainer, self._samples, self._storage = trainer, samples, samples.storage
        self._clock, self._when = clock, settings.drop_caches
        self._before = process_io()

    def begin_epoch(self):
        """Drops the page cache of all files before the first epoch, or before each."""
        if self._storage and self._when != "none":
            self._when = "none" if self._when == "once" else self._when
            with self._clock.pause("checks"):
                if self._trainer.ranks.local_rank == 0:
                    drop_caches(self._storage.paths())
                # Barrier: what others read already would be dropped.
                self._trainer.sum(np.zeros(1))

    def of_record(self):
        """Returns {"reading": what common/record/definition.py says of it}; empty for data in memory."""
        if not self._storage:
            return {}
        use, written = self._samples.use, self._storage.written
        now = process_io()
        read, from_disk = (now[key] - self._before[key] if now else np.nan for key in ("rchar", "read_bytes"))
        counts = {"sample_bytes": use.size_bytes, "num_opens": use.num_opens, "read_bytes": read, "disk_bytes": from_disk}
        return {
            "reading": {
                "sample_order": "global" if self._samples.streamed is None else "files",
                "num_steps": use.num_steps,
                "wait_seconds_by_rank": by_rank(self._trainer, use.wait_seconds).tolist(),
                **{f"{name}_by_rank": [_whole(number) for number in by_rank(self._trainer, value)] for name, value in counts.items()},
                "budget_bytes": self._storage.budget_bytes,
                "stored_bytes": written.size_bytes,
                "convert_seconds": written.convert_seconds,
            }
        }


def _whole(value):
    return None if np.isnan(value) else int(value)


def process_io():
    """Reads {name: number} of /proc/self/io: `rchar`, bytes that this process has read, and `read_bytes`, those that came from disks.

    None where Linux does not tell.
    """
    try:
        return {name: int(value) for name, value in (line.split(": ") for line in PROCESS_IO.read_text().splitlines())}
    except OSError:
        return None


def drop_caches(paths):
    """Takes the files out of the page cache, as far as no other process maps them (posix_fadvise(2)); needs no privilege."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
