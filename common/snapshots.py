"""Snapshots: a whole training after an epoch, in a file that any backend can go on from.

A file holds parameters and optimizer slots in the names and layouts of weights.py (safetensors), and in its metadata, as JSON,
what the training was: whoever goes on must train the same.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from common.errors import UserError

LAST, BEST = "model-last.safetensors", "model-best.safetensors"


class About(NamedTuple):
    """What a snapshot is of: the epochs that were trained, the best accuracy among them, and what was trained how."""

    epochs: int
    best_accuracy: float | None
    workload_digest: str
    seed: int
    global_batch: int
    rate_factor: float


# What a training that goes on must have like the one before, and the settings that make it so.
MUST_AGREE = {
    "workload_digest": "workload, data, optimizer, batch, rates and precision",
    "seed": "--seed",
    "global_batch": "the number of ranks times --batch-size, or --batch-size under --scaling strong",
    "rate_factor": "--rate-factor, or the number of ranks",
}


def write(path, state, about):
    """Writes a snapshot beside `path` and moves it there; a reader sees the old one or the new one, whole."""
    part = path.with_name(path.name + ".part")
    save_file({name: np.array(array, order="C") for name, array in state.items()}, part, {"tandem": json.dumps(about._asdict())})
    os.replace(part, path)


def read(path):
    """(state, About) of a snapshot. Raises UserError for a file that is none."""
    try:
        with safe_open(path, "numpy") as file:
            about = About(**json.loads(file.metadata()["tandem"]))
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as problem:
        raise UserError(f"{path} is no snapshot of Tandem ({problem}); move it away") from None


def check(path, about, expected, epochs):
    """Raises UserError where a snapshot is of another training than `expected`, or leaves none of the `epochs` to train."""
    for name, settings in MUST_AGREE.items():
        if getattr(about, name) != getattr(expected, name):
            shown = "" if name == "workload_digest" else f" ({name} {getattr(about, name)} there, {getattr(expected, name)} here)"
            raise UserError(f"{path} is of another training{shown}; give the same {settings}, or another --snapshot-dir")
    if about.epochs >= epochs:
        raise UserError(f"{path} is after epoch {about.epochs}; with --epochs {epochs} there is nothing left to train")


def resume(trainer, settings, expected):
    """The About of the last snapshot, which the trainer has then taken over; `expected` where there is none yet."""
    path = Path(settings.snapshot_dir) / LAST
    if not path.exists():
        return expected
    state, about = read(path)
    check(path, about, expected, settings.epochs)
    trainer.restore(state)
    return about


def keep(trainer, settings, about, accuracy, ended):
    """Writes what is due after an epoch, and returns the About with the best accuracy so far; all ranks have to call it.

    `ended` tells that it was the last epoch.
    """
    best = accuracy is not None and (about.best_accuracy is None or accuracy > about.best_accuracy)
    about = about._replace(best_accuracy=accuracy if best else about.best_accuracy)
    due = [LAST] if ended or about.epochs % settings.snapshot_every == 0 else []
    names = [*due, *([BEST] if best else [])]
    if names:
        state = trainer.state()
        if trainer.ranks.rank == 0:
            for name in names:
                write(Path(settings.snapshot_dir) / name, state, about)
    return about
