"""Checkpoints: the state of a run after an epoch, in a file from which any backend can resume.

A checkpoint is a safetensors file with parameters, rank 0's buffers and optimizer state in the names and layouts of weights.py. Its
metadata (JSON) describes the run; a run resumes only from a checkpoint with the same description.
"""

import contextlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, get_args, get_type_hints

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from common import durable, metric, workloads
from common.config import Settings
from common.errors import UserError
from common.model import weights
from common.record import files
from common.record.parts import CheckpointIo
from common.trainer import Trainer

# Without --checkpoint-dir a run keeps a checkpoint beside its record after each epoch that takes longer, and removes it at its end.
LONG_EPOCH_SECONDS = 20.0
MOVE_AWAY = "move it away, or give another --checkpoint-dir"
LAST, BEST = "model-last.safetensors", "model-best.safetensors"


class About(NamedTuple):
    """The metadata of a checkpoint: epochs trained, best accuracy so far, and what identifies the run.

    `progress` has what the record of the same run then goes on with, by its keys, and `seconds`, those on the clock.
    """

    epochs: int
    best_accuracy: float | None
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
        with safe_open(path, "numpy") as file:
            about = _about(file.metadata()["tandem"])
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as problem:
        reason = " ".join(str(problem).split())
        raise UserError(f"{path} is not a Tandem checkpoint ({reason}); move it away") from None


def _about(text: str) -> About:
    """Reads the metadata. Raises ValueError where a value has a wrong type, or is none that a run writes."""
    about = About(**json.loads(text, parse_constant=_reject_constant))
    for name, hint in get_type_hints(About).items():
        if type(value := getattr(about, name)) not in (get_args(hint) or (hint,)):
            raise ValueError(f"{name} is {value!r}")
    if about.epochs < 1:
        raise ValueError(f"epochs is {about.epochs}")
    return about


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def expect_whole(
    path: Path, state: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]], buffers: Mapping[str, np.ndarray]
) -> None:
    """Raises UserError where a checkpoint lacks a parameter, a buffer or a part of a kind of optimizer state, or has wrong shapes or NaN.

    The shapes are those of the parameters by name, and the buffers those of the model. Optimizer state, KIND/NAME, has the shape of its
    parameter, or one number.
    """
    of_file = weights.buffers_of(state)
    for name in sorted(of_file.keys() ^ buffers.keys()):
        raise UserError(f"{path} {'lacks' if name in buffers else 'has'} {name}, and is no checkpoint of this model; {MOVE_AWAY}")
    for name, values in of_file.items():
        if (values.shape, values.dtype) != (buffers[name].shape, buffers[name].dtype):
            raise UserError(f"{path} has {name} of another shape or type than the model; {MOVE_AWAY}")
    state = {name: values for name, values in state.items() if name not in of_file}
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
    """The checkpoints of a run, and the time that they take. All ranks make the same calls, and rank 0 writes.

    `about` describes the run so far.
    """

    def __init__(self, trainer: Trainer, settings: Settings, about: About) -> None:
        self._trainer, self._settings, self.about = trainer, settings, about
        self._folder = settings.checkpoint_dir or (files.checkpoint_folder(settings) if settings.run_id else None)
        self._io = CheckpointIo()

    def resume(self) -> None:
        """Loads the last checkpoint, if there is one. Raises UserError if it belongs to another run, or no epoch is left to train."""
        folder, num_epochs = self._folder, self._settings.epochs
        if folder is None or not (path := folder / LAST).exists():
            return
        with self._timed("read_seconds"):
            state, about = read(path)
        self._io.num_reads += 1
        self._io.read_bytes += path.stat().st_size
        for name, setting in MUST_AGREE.items():
            saved, current = getattr(about, name), getattr(self.about, name)
            if saved != current:
                detail = "" if name == "workload_digest" else f" ({name} {saved} there, {current} here)"
                raise UserError(f"{path} belongs to a different run{detail}; use the same {setting}, or another --checkpoint-dir")
        if num_epochs is not None and about.epochs >= num_epochs:
            raise UserError(f"{path} was written after epoch {about.epochs}; --epochs {num_epochs} leaves nothing to train")
        parameters = workloads.workload_of(self._settings).parameters
        shapes = {name: tuple(initial.shape) for name, initial in parameters.items()}
        expect_whole(path, state, shapes, weights.buffers_of(self._trainer.state(with_optimizer_state=False)))
        self._trainer.restore(state)
        self.about = about

    def keep(self, epochs: int, accuracy: float | None, ended: bool) -> None:
        """Writes the checkpoints due after so many epochs; the last epoch of a run that has `ended` always writes one."""
        folder = self._settings.checkpoint_dir
        if folder is None:
            return
        is_best = accuracy is not None and self._is_best(accuracy)
        self.about = self.about._replace(epochs=epochs, best_accuracy=accuracy if is_best else self.about.best_accuracy)
        is_due = ended or epochs % self._settings.checkpoint_every == 0
        paths = [folder / name for name, is_written in ((LAST, is_due), (BEST, is_best)) if is_written]
        if not paths:
            return
        with self._timed("gather_seconds"):
            state = self._trainer.state()
        if self._trainer.ranks.rank == 0:
            for path in paths:
                with self._timed("write_seconds"):
                    write(path, state, self.about)
                self._io.num_writes += 1
                self._io.written_bytes += path.stat().st_size

    def keep_own(self, epochs: int, progress: dict[str, Any], is_long: bool, ended: bool) -> None:
        """Writes the checkpoint of a run without --checkpoint-dir after an epoch that was long, and removes it at the end."""
        if self._folder is None or self._settings.checkpoint_dir:
            return
        state = self._trainer.state() if is_long and not ended else {}
        # A run is not to fail for what it may never need.
        with contextlib.suppress(OSError):
            if state and self._trainer.ranks.rank == 0:
                self._folder.mkdir(exist_ok=True)
                write(self._folder / LAST, state, self.about._replace(epochs=epochs, progress=progress))
            elif ended and self._trainer.ranks.rank == 0:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _is_best(self, accuracy: float) -> bool:
        best, lower_is_better = self.about.best_accuracy, workloads.workload_of(self._settings).lower_is_better
        return best is None or metric.is_better(accuracy, best, lower_is_better)

    def io(self) -> CheckpointIo | None:
        """Returns `checkpoint_io` of the record; None where nothing was read or written."""
        return self._io if self._io.num_writes or self._io.num_reads else None

    @contextlib.contextmanager
    def _timed(self, name: Literal["gather_seconds", "write_seconds", "read_seconds"]) -> Iterator[None]:
        """Adds the time within this context to the seconds of that name."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            setattr(self._io, name, getattr(self._io, name) + time.perf_counter() - begun)
