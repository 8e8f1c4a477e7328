"""The checkpoint of a run: its state after an epoch, in a file from which any backend can resume.

A checkpoint is a safetensors file with parameters, rank 0's buffers and optimizer state in the names and layouts of weights.py. Its
metadata (JSON) describes the run; a run resumes only from a checkpoint with the same description.
"""

import contextlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from common import durable
from common.config import Settings
from common.errors import UserError
from common.record import files
from common.trainer import Trainer

# Without --checkpoint-dir a run keeps a checkpoint beside its record after each epoch that takes longer, and removes it at its end.
LONG_EPOCH_SECONDS = 20.0
NAME = "model-last.safetensors"


class About(NamedTuple):
    """The metadata of a checkpoint: epochs trained, and what identifies the run.

    `progress` has what the record of the same run then goes on with, by its keys, and `seconds`, those on the clock.
    """

    epochs: int
    workload_digest: str
    seed: int
    global_batch: int
    learning_rate_factor: float
    progress: dict | None = None


# Fields that must be equal to resume, and the settings that determine them.
MUST_AGREE = {
    "workload_digest": "workload, data, optimizer, batch size, learning rate and precision, and for --model the same text of the file",
    "seed": "--seed",
    "global_batch": "--batch-size times --accumulate and, but for --scaling strong, the number of ranks",
    "learning_rate_factor": "the number of ranks",
}


def write(path: Path, state: Mapping[str, np.ndarray], about: About) -> None:
    """Replaces the checkpoint at `path` atomically."""
    with durable.replacing(path) as temporary:
        save_file({name: np.array(array, order="C") for name, array in state.items()}, temporary, {"tandem": json.dumps(about._asdict())})


def read(path: Path) -> tuple[dict[str, np.ndarray], About]:
    """Reads the state and the metadata of a checkpoint. Raises UserError if the file is not a checkpoint."""
    try:
        durable.expect_regular(path)
        with safe_open(path, "numpy") as file:
            about = About(**json.loads(file.metadata()["tandem"]))
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as problem:
        reason = " ".join(str(problem).split())
        raise UserError(f"{path} is not a Tandem checkpoint ({reason}); move it away") from None


def folder_of(settings: Settings) -> Path | None:
    """Returns the folder of the checkpoint: that of --checkpoint-dir, else one beside the record of a run with a name."""
    return settings.checkpoint_dir or (files.checkpoint_folder(settings) if settings.run_id else None)


def resume(trainer: Trainer, settings: Settings, about: About) -> About:
    """Loads the last checkpoint of the run that `about` describes, and returns what it is; returns `about` where there is none.

    All ranks call this. Raises UserError if the checkpoint belongs to another run, or no epoch is left to train.
    """
    folder, num_epochs = folder_of(settings), settings.epochs
    if folder is None or not (path := folder / NAME).exists():
        return about
    state, saved_about = read(path)
    for name, setting in MUST_AGREE.items():
        saved, current = getattr(saved_about, name), getattr(about, name)
        if saved != current:
            detail = "" if name == "workload_digest" else f" ({name} {saved} there, {current} here)"
            raise UserError(f"{path} belongs to a different run{detail}; use the same {setting}, or another --checkpoint-dir")
    if num_epochs is not None and saved_about.epochs >= num_epochs:
        raise UserError(f"{path} was written after epoch {saved_about.epochs}; --epochs {num_epochs} leaves nothing to train")
    trainer.restore(state)
    return saved_about


def keep(trainer: Trainer, settings: Settings, about: About) -> None:
    """Writes the checkpoint of a run with --checkpoint-dir. All ranks call this, and rank 0 writes."""
    if settings.checkpoint_dir:
        state = trainer.state()
        if trainer.ranks.rank == 0:
            write(settings.checkpoint_dir / NAME, state, about)


def keep_own(trainer: Trainer, settings: Settings, about: About, is_long: bool, ended: bool) -> None:
    """Writes the checkpoint of a run without --checkpoint-dir after an epoch that was long, and removes it at the end."""
    folder = folder_of(settings)
    if folder is None or settings.checkpoint_dir:
        return
    state = trainer.state() if is_long and not ended else {}
    # A run is not to fail for what it may never need, as on a full disk.
    with contextlib.suppress(OSError, SafetensorError):
        if state and trainer.ranks.rank == 0:
            folder.mkdir(exist_ok=True)
            write(folder / NAME, state, about)
        elif ended and trainer.ranks.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
