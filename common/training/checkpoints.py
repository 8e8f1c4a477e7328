"""Checkpoints: the state of a run after an epoch, in a file from which any backend can resume.

A checkpoint is a safetensors file with parameters and optimizer state in the names and layouts of weights.py. Its metadata (JSON)
describes the run; a run resumes only from a checkpoint with the same description.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from common import durable
from common.errors import UserError

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


def check(path, about, expected, epochs):
    """Raises UserError if a checkpoint belongs to another run than `expected`, or no epoch of `epochs` is left to train."""
    for name, settings in MUST_AGREE.items():
        if getattr(about, name) != getattr(expected, name):
            values = f"{name} {getattr(about, name)} there, {getattr(expected, name)} here"
            detail = "" if name == "workload_digest" else f" ({values})"
            raise UserError(f"{path} belongs to a different run{detail}; use the same {settings}, or another --checkpoint-dir")
    if about.epochs >= epochs:
        raise UserError(f"{path} was written after epoch {about.epochs}; --epochs {epochs} leaves nothing to train")


def resume(trainer, settings, expected, io):
    """Loads the last checkpoint into the trainer and returns its About; returns `expected` if there is no checkpoint.

    `io`: CheckpointIo of the run.
    """
    path = Path(settings.checkpoint_dir) / LAST
    if not path.exists():
        return expected
    state, about = io.read(path)
    check(path, about, expected, settings.epochs)
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
            io.write([Path(settings.checkpoint_dir) / name for name in names], state, about)
    return about
