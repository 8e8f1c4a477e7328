"""The checks of a training: all ranks have the same settings, data, checkpoint and parameters, and all numbers are finite.

All ranks make the same calls, and each call raises its error on every rank.
"""

import hashlib
import json
import math

import numpy as np

from common import config
from common.config import Settings
from common.data.samples import Dataset
from common.errors import Diverged
from common.model import weights
from common.record.definition import Record
from common.trainer import NO_LOSS, Trainer
from common.training import agreement
from common.training.checkpoints import About

# Settings that may differ between ranks, such as folders and names.
OF_A_NODE = {*config.with_role(config.Role.MAY_DIFFER), "checkpoint_dir"} - {*config.TRAINING_SETTINGS}
REMEDY = "lower --learning-rate, or give more --warmup-epochs"


def expect_same_settings(trainer: Trainer, settings: Settings) -> None:
    """Raises OutOfSync if the ranks train with different settings, as ranks that were started by hand may do."""
    compared = {name: value for name, value in config.as_json(settings).items() if name not in OF_A_NODE}
    agreement.expect_same(trainer, _digest(compared), "have different settings", "start all ranks with the same command")


def expect_same_data(trainer: Trainer, data: Dataset) -> None:
    """Raises OutOfSync if the ranks have read different data."""
    agreement.expect_same(trainer, _digest(data.digest), "have read different data", "give every node the same files in --data-dir")


def expect_same_checkpoint(trainer: Trainer, about: About) -> None:
    """Raises OutOfSync if the ranks resume after different epochs."""
    agreement.expect_same(trainer, _digest(about), "resume from different checkpoints", "give a --checkpoint-dir that all nodes share")


def _digest(value: object) -> bytes:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()


def check_epoch(trainer: Trainer, losses: np.ndarray, skipped: np.ndarray, record: Record, epoch: int) -> None:
    """Checks the losses, the gradients and the parameters of an epoch. Raises Diverged or OutOfSync."""
    try:
        expect_finite(trainer, losses, record, epoch)
        expect_applied(skipped, f"epoch {epoch + 1}")
        compare_replicas(trainer, record, f"after epoch {epoch + 1}")
    except Diverged:
        # A model that predicts NaN has not reached a target, and its speed is that of no training.
        record.reached = None if record.target is None else False
        record.time_to_solution_seconds = record.samples_per_second = None
        raise


def compare_replicas(trainer: Trainer, record: Record, when: str) -> None:
    """Compares a digest of all parameters across ranks. Raises OutOfSync if they differ, and Diverged if one is not finite.

    Buffers may differ: those of batch norm have the statistics of what a rank has seen.
    """
    state = trainer.state(with_optimizer_state=False)
    buffers = weights.buffers_of(state)
    parameters = {name: values for name, values in state.items() if name not in buffers}
    digest = weights.digest(parameters)
    differs, has_diverged = agreement.compare(trainer, digest, flag=not all(map(_is_finite, parameters.values())))
    # NaN has many bit patterns, so that replicas which have diverged may differ.
    if has_diverged:
        raise Diverged(f"the parameters are not finite {when}, though the losses are; {REMEDY}")
    record.in_sync = not differs
    record.parameter_digests.append(digest.hex())
    if buffers:
        buffer_digest = weights.digest(buffers)
        record.buffer_digests.append(buffer_digest.hex())
        is_equal = not agreement.compare(trainer, buffer_digest).differs
        record.buffers_in_sync = is_equal and record.buffers_in_sync is not False
    if differs:
        agreement.expect_same(trainer, digest, f"have different parameters {when}", "the replicas are out of sync")


def _is_finite(values: np.ndarray) -> bool:
    # Minimum and maximum are NaN where a value is, and take no memory.
    return bool(np.isfinite([values.min(), values.max()]).all())


def expect_finite(trainer: Trainer, losses: np.ndarray, record: Record, epoch: int) -> None:
    """Adds the losses of an epoch to the record. Raises Diverged if one of them is not finite, or the loss of the evaluation.

    Sums over the ranks are not finite where the number of any rank is not.
    """
    mean, has_trained = _mean_over_ranks(trainer, losses)
    record.losses += mean.tolist()
    wrong = np.flatnonzero(~np.isfinite(mean) & has_trained)
    if len(wrong):
        step = wrong[0]
        update = f", after the update of step {step}" if step else ""
        raise Diverged(f"the loss of step {step + 1} of epoch {epoch + 1} is {mean[step]}, the first that is not finite{update}; {REMEDY}")
    evaluation_loss = record.eval_losses[-1] if record.eval_losses else None
    if evaluation_loss is not None and not math.isfinite(evaluation_loss):
        raise Diverged(f"the loss of the evaluation after epoch {epoch + 1} is {evaluation_loss}; {REMEDY}")


def expect_applied(skipped: np.ndarray, period: str, remedy: str = REMEDY) -> None:
    """Raises Diverged if the library has skipped a step of a period, such as `epoch 2`.

    It decides by the norm of all ranks' gradients, and so alike on all ranks.
    """
    if skipped.any():
        step = np.flatnonzero(skipped)[0] + 1
        raise Diverged(f"a gradient of step {step} of {period} is not finite, for which the library has skipped the step; {remedy}")


def _mean_over_ranks(trainer: Trainer, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean of the losses of each step over the ranks that trained in it, and whether there is such a rank."""
    trained = losses != NO_LOSS
    total, num_trained = trainer.sum(np.array([np.where(trained, losses, 0.0), trained], dtype=np.float64))
    with np.errstate(invalid="ignore"):
        return total / num_trained, num_trained > 0
