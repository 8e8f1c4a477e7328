"""Reading and writing of checkpoints: how long it takes, and writing while the training goes on."""

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from common.record import definition
from common.training import checkpoints


class CheckpointIo:
    """The checkpoint files of a run, on the rank that reads and writes them; the others only gather the state.

    With `in_background` a thread writes a copy of the state. Then one checkpoint is written at a time: the next one waits for it.
    """

    def __init__(self, in_background):
        self._pool = ThreadPoolExecutor(1, "checkpoint") if in_background else None
        self._writing = None
        self._totals = definition.CheckpointIo()

    def read(self, path):
        """Returns (state, About) of a checkpoint."""
        state_and_about = self._timed("read_seconds", checkpoints.read, path)
        self._totals.num_reads += 1
        self._totals.read_bytes += path.stat().st_size
        return state_and_about

    def gather(self, state):
        """The state that `state()` gathers from all ranks."""
        return self._timed("gather_seconds", state)

    def write(self, paths, state, about):
        """Writes one state to each of the paths. Raises what the writing before raised in the background."""
        if not self._pool:
            self._write(paths, state, about)
            return
        self.finish()
        # A framework may change its arrays with the next step.
        copy = {name: np.array(array, order="C") for name, array in state.items()}
        self._writing = self._pool.submit(self._write, paths, copy, about)

    def finish(self):
        """Waits until all is written."""
        if self._writing:
            writing, self._writing = self._writing, None
            self._timed("wait_seconds", writing.result)

    def of_record(self):
        """`checkpoint_io` of the record; empty where nothing was read or written."""
        self.finish()
        is_used = self._totals.num_writes or self._totals.num_reads
        return {"checkpoint_io": dataclasses.asdict(self._totals)} if is_used else {}

    def _write(self, paths, state, about):
        for path in paths:
            self._timed("write_seconds", checkpoints.write, path, state, about)
            self._totals.num_writes += 1
            self._totals.written_bytes += path.stat().st_size

    def _timed(self, name, function, *arguments):
        begun = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            setattr(self._totals, name, getattr(self._totals, name) + time.perf_counter() - begun)
