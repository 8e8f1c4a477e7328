"""Checkpoints: the state of a run after an epoch, in a file from which any backend can resume.

A checkpoint is a safetensors file with parameters and optimizer state in the names and layouts of weights.py. Its metadata (JSON)
describes the run; a run resumes only from a checkpoint with the same description.
"""

import dataclasses
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, get_args, get_type_hints

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from common import durable, workloads
from common.errors import UserError
from common.record import definition

MOVE_AWAY = "move it away, or give another --checkpoint-dir"
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


def read(path: Path) -> tuple[dict[str, np.ndarray], About]:
    """(state, About) of a checkpoint. Raises UserError if the file is not a checkpoint."""
    try:
        with safe_open(path, "numpy") as file:
            about = _about(file.metadata()["tandem"])
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as problem:
        reason = " ".join(str(problem).split())
        raise UserError(f"{path} is not a Tandem checkpoint ({reason}); move it away") from None


def _about(text: str) -> About:
    """The About in the metadata. Raises ValueError where a value has another type, or is none that a run writes."""
    about = About(**json.loads(text, parse_constant=_reject_constant))
    for name, hint in get_type_hints(About).items():
        if type(value := getattr(about, name)) not in (get_args(hint) or (hint,)):
            raise ValueError(f"{name} is {value!r}")
    if about.epochs < 1:
        raise ValueError(f"epochs is {about.epochs}")
    return about


def _reject_constant(name):
    raise ValueError(f"{name} is no number")


def expect_whole(path: Path, state: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]]) -> None:
    """Raises UserError where a checkpoint lacks a parameter or some of a kind of optimizer state, or has other shapes or NaN.

    `shapes`: those of the parameters by name. Optimizer state, KIND/NAME, has the shape of its parameter, or one number.
    """
    kinds = dict.fromkeys(name.rpartition("/")[0] for name in state)
    expected = {f"{kind}/{name}" if kind else name for kind in ["", *filter(None, kinds)] for name in shapes}
    for name in sorted(expected ^ state.keys()):
        raise UserError(f"{path} {'lacks' if name in expected else 'has'} {name}, and is no checkpoint of this model; {MOVE_AWAY}")
    for name, values in state.items():
        shape = shapes[name.rpartition("/")[2]]
        if values.shape != shape and not ("/" in name and values.shape == ()):
            raise UserError(f"{path} has {name} of shape {values.shape}, and the model's is {shape}; {MOVE_AWAY}")
        if values.dtype.kind != "f" or not np.isfinite(values).all():
            raise UserError(f"{path} has values in {name} that are no finite numbers; {MOVE_AWAY}")


class Checkpoints:
    """The checkpoints of a run, and how long they take. All ranks make the same calls; rank 0 writes. `about` describes the run so far.

    With --checkpoint-async a thread writes a copy of the state. Then one checkpoint is written at a time: the next one waits for it.
    """

    def __init__(self, trainer, settings, about):
        self._trainer, self._settings, self.about = trainer, settings, about
        self._pool = ThreadPoolExecutor(1, "checkpoint") if settings.checkpoint_async else None
        self._writing = None
        self._totals = definition.CheckpointIo()

    def resume(self):
        """Loads the last checkpoint, if there is one. Raises UserError if it belongs to another run, or no epoch is left to train."""
        path, epochs = self._settings.checkpoint_dir / LAST, self._settings.epochs
        if not path.exists():
            return
        state, about = self._timed("read_seconds", read, path)
        self._totals.num_reads += 1
        self._totals.read_bytes += path.stat().st_size
        for name, setting in MUST_AGREE.items():
            saved, current = getattr(about, name), getattr(self.about, name)
            if saved != current:
                detail = "" if name == "workload_digest" else f" ({name} {saved} there, {current} here)"
                raise UserError(f"{path} belongs to a different run{detail}; use the same {setting}, or another --checkpoint-dir")
        if about.epochs >= epochs:
            raise UserError(f"{path} was written after epoch {about.epochs}; --epochs {epochs} leaves nothing to train")
        parameters = workloads.workload_of(self._settings).parameters
        expect_whole(path, state, {name: tuple(initial.shape) for name, initial in parameters.items()})
        self._trainer.restore(state)
        self.about = about

    def keep(self, epochs, accuracy, ended):
        """Writes the checkpoints due after so many epochs, the last of which is done if the run has `ended`.

        Raises what the writing before raised in the background.
        """
        best = accuracy is not None and (self.about.best_accuracy is None or accuracy > self.about.best_accuracy)
        self.about = self.about._replace(epochs=epochs, best_accuracy=accuracy if best else self.about.best_accuracy)
        due = [LAST] if ended or epochs % self._settings.checkpoint_every == 0 else []
        paths = [self._settings.checkpoint_dir / name for name in [*due, *([BEST] if best else [])]]
        if not paths:
            return
        state = self._timed("gather_seconds", self._trainer.state)
        if self._trainer.ranks.rank == 0 and self._pool:
            self._finish()
            # A framework may change its arrays with the next step.
            copy = {name: np.array(array, order="C") for name, array in state.items()}
            self._writing = self._pool.submit(self._write, paths, copy, self.about)
        elif self._trainer.ranks.rank == 0:
            self._write(paths, state, self.about)

    def of_record(self):
        """`checkpoint_io` of the record, when all is written; empty where nothing was read or written."""
        self._finish()
        is_used = self._totals.num_writes or self._totals.num_reads
        return {"checkpoint_io": dataclasses.asdict(self._totals)} if is_used else {}

    def _finish(self):
        """Waits until all is written."""
        if self._writing:
            writing, self._writing = self._writing, None
            self._timed("wait_seconds", writing.result)

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
