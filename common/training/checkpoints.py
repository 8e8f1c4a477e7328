"""Checkpoints: the state of a run after an epoch, in a file from which any backend can resume.

A checkpoint is a safetensors file with parameters and optimizer state in the names and layouts of weights.py. Its metadata (JSON)
describes the run; a run resumes only from a checkpoint with the same description.
"""

import dataclasses
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from common import durable
from common.errors import UserError
from common.record import definition

LAST, BEST = "model-last.safetensors", "model-best.safetensors"


class About(NamedTuple):
    """The metadata of a checkpoint: epochs trained, best accuracy so far, and what identifies the run."""

    epochs: int
    best_accuracy: float | None
    workload_digest: str
    seed: int
    global_batch: int
    learning_rate_factor: float


# Fields that must be equal to resume, and the settings that determine them.
MUST_AGREE = {
    "workload_digest": "workload, data, optimizer, batch size, learning rate and precision",
    "seed": "--seed",
    "global_batch": "--batch-size times --accumulate and, but for --scaling strong, the number of ranks",
    "learning_rate_factor": "--learning-rate-factor, or the number of ranks",
}


def write(path, state, about):
    """Replaces the checkpoint at `path` atomically."""
    with durable.replacing(path) as part:
        save_file({name: np.array(array, order="C") for name, array in state.items()}, part, {"tandem": json.dumps(about._asdict())})


def read(path):
    """(state, About) of a checkpoint. Raises UserError if the file is not a checkpoint."""
    try:
        with safe_open(path, "numpy") as file:
            about = About(**json.loads(file.metadata()["tandem"]))
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as problem:
        raise UserError(f"{path} is not a Tandem checkpoint ({problem}); move it away") from None


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
        state_and_about = self._timed("read_seconds", read, path)
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
            self._timed("write_seconds", write, path, state, about)
            self._totals.num_writes += 1
            self._totals.written_bytes += path.stat().st_size

    def _timed(self, name, function, *arguments):
        begun = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            setattr(self._totals, name, getattr(self._totals, name) + time.perf_counter() - begun)


def resume(trainer, settings, expected, io):
    """Loads the last checkpoint into the trainer and returns its About; returns `expected` if there is no checkpoint.

    `io`: CheckpointIo of the run. Raises UserError if the checkpoint belongs to another run, or no epoch is left to train.
    """
    path = settings.checkpoint_dir / LAST
    if not path.exists():
        return expected
    state, about = io.read(path)
    for name, same in MUST_AGREE.items():
        if getattr(about, name) != getattr(expected, name):
            values = f"{name} {getattr(about, name)} there, {getattr(expected, name)} here"
            detail = "" if name == "workload_digest" else f" ({values})"
            raise UserError(f"{path} belongs to a different run{detail}; use the same {same}, or another --checkpoint-dir")
    if about.epochs >= settings.epochs:
        raise UserError(f"{path} was written after epoch {about.epochs}; --epochs {settings.epochs} leaves nothing to train")
    trainer.restore(state)
    return about


def keep(trainer, settings, about, accuracy, ended, io):
    """Writes the checkpoints due after an epoch; returns the About with the best accuracy so far. All ranks call this.

    `ended`: this was the last epoch. `io`: CheckpointIo of the run.
    """
    best = accuracy is not None and (about.best_accuracy is None or accuracy > about.best_accuracy)
    about = about._replace(best_accuracy=accuracy if best else about.best_accuracy)
    due = [LAST] if ended or about.epochs % settings.checkpoint_every == 0 else []
    names = [*due, *([BEST] if best else [])]
    if names:
        state = io.gather(trainer.state)
        if trainer.ranks.rank == 0:
            io.write([settings.checkpoint_dir / name for name in names], state, about)
    return about
