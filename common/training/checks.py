"""The checks of a training: all ranks have the same settings, data, checkpoint and parameters, all numbers are finite, and the threads of
each rank run on its cores.

All ranks make the same calls, and each call raises its error on every rank. An error of what must be equal names the ranks that differ.
"""

import hashlib
import json
import math
import os
import socket
from collections import Counter
from collections.abc import Collection, Sequence, Set
from typing import NamedTuple

import numpy as np

from common import config
from common.config import Settings
from common.data.samples import Dataset
from common.errors import Diverged, RunError
from common.model import weights
from common.ranks import binding, machine
from common.ranks.launcher_variables import by_rank, node_name, values_by_rank
from common.record.definition import Record
from common.trainer import NO_LOSS, Trainer
from common.training.checkpoints import About

# Settings that may differ between ranks, such as folders and names.
OF_A_NODE = {*config.with_role(config.Role.MAY_DIFFER), "checkpoint_dir"} - {*config.TRAINING_SETTINGS}
REMEDY = "lower --learning-rate, or give more --warmup-epochs"


class OutOfSync(RunError):
    """Something that must be equal on all ranks is not."""


class Comparison(NamedTuple):
    """Whether the digests of any ranks differ, and whether any rank has set its flag."""

    differs: bool
    is_flagged: bool


def expect_same_settings(trainer: Trainer, settings: Settings) -> None:
    """Raises OutOfSync if the ranks train with different settings, as ranks that were started by hand may do."""
    compared = {name: value for name, value in config.as_json(settings).items() if name not in OF_A_NODE}
    expect_same(trainer, _digest(compared), "have different settings", "start all ranks with the same command")


def expect_same_data(trainer: Trainer, data: Dataset) -> None:
    """Raises OutOfSync if the ranks have read different data."""
    expect_same(trainer, _digest(data.digest), "have read different data", "give every node the same files in --data-dir")


def expect_same_checkpoint(trainer: Trainer, about: About) -> None:
    """Raises OutOfSync if the ranks resume after different epochs."""
    expect_same(trainer, _digest(about), "resume from different checkpoints", "give a --checkpoint-dir that all nodes share")


def _digest(value: object) -> bytes:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()


def check_epoch(trainer: Trainer, losses: np.ndarray, skipped: np.ndarray, record: Record, epoch: int) -> None:
    """Checks the losses, the gradients and the parameters of an epoch, which counts from 1. Raises Diverged or OutOfSync."""
    try:
        expect_finite(trainer, losses, record, epoch)
        expect_applied(skipped, f"epoch {epoch}")
        compare_replicas(trainer, record, f"after epoch {epoch}")
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
    # Minimum and maximum are NaN where a value is, and take no memory.
    is_finite = np.isfinite([extreme for values in parameters.values() for extreme in (values.min(), values.max())]).all()
    differs, has_diverged = compare_digests(trainer, digest, flag=not is_finite)
    # NaN has many bit patterns, so that replicas which have diverged may differ.
    if has_diverged:
        raise Diverged(f"the parameters are not finite {when}, though the losses are; {REMEDY}")
    record.in_sync = not differs
    record.parameter_digests.append(digest.hex())
    if buffers:
        is_equal = not compare_digests(trainer, weights.digest(buffers)).differs
        record.buffers_in_sync = is_equal and record.buffers_in_sync is not False
    if differs:
        expect_same(trainer, digest, f"have different parameters {when}", "the replicas are out of sync")


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
        raise Diverged(f"the loss of step {step + 1} of epoch {epoch} is {mean[step]}, the first that is not finite{update}; {REMEDY}")
    evaluation_loss = record.eval_losses[-1] if record.eval_losses else None
    if evaluation_loss is not None and not math.isfinite(evaluation_loss):
        raise Diverged(f"the loss of the evaluation after epoch {epoch} is {evaluation_loss}; {REMEDY}")


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


def compare_digests(trainer: Trainer, digest: bytes, flag: bool = False) -> Comparison:
    """Compares digests of 32 bytes over the ranks. All ranks call this, each with a flag of its own.

    Integers are equal on all ranks if and only if their sum is `size` times the value of each rank. The digest is summed as eight
    32-bit integers, which is exact in float64.
    """
    numbers = np.frombuffer(digest, np.uint32).astype(np.float64)
    has_unequal_sum = (trainer.sum(numbers) != trainer.ranks.size * numbers).any()
    num_differing, num_flagged = trainer.sum(np.array([has_unequal_sum, flag], dtype=np.float64)).tolist()
    return Comparison(num_differing > 0, num_flagged > 0)


def expect_same(trainer: Trainer, digest: bytes, difference: str, remedy: str) -> None:
    """Raises OutOfSync on every rank, with the differing ranks and their nodes, where the digests differ. All ranks call this.

    The difference is the end of a sentence that begins with "the ranks", such as "have read different data".
    """
    if compare_digests(trainer, digest).differs:
        digests, hosts = zip(*values_by_rank(trainer, [digest.hex(), socket.gethostname()]), strict=True)
        raise OutOfSync(f"the ranks {difference}: {describe_different(digests, hosts)}; {remedy}")


def describe_different(digests: Sequence[str], hosts: Sequence[str]) -> str:
    """Names the ranks, and their nodes, whose digest is not the most frequent one. Of equally frequent ones the lowest rank decides."""
    # Counter returns the first of equally frequent digests.
    most_frequent = Counter(digests).most_common(1)[0][0]
    reference = digests.index(most_frequent)
    different = [f"rank {rank} ({hosts[rank]})" for rank, digest in enumerate(digests) if digest != most_frequent]
    shown = different[:8] + ([f"{len(different) - 8} more"] if len(different) > 8 else [])
    return f"{', '.join(shown)} {'has' if len(different) == 1 else 'have'} not the same as rank {reference} ({hosts[reference]})"


def check_cores(trainer: Trainer, settings: Settings, cores: Set[int]) -> tuple[list[list[int]], bool]:
    """Returns the cores of each rank, and whether ranks are oversubscribed. All ranks call this, each with its own cores.

    Raises RunError, on every rank, where a rank's threads are not on its cores, or compute in another number than --threads.
    """
    cores_of_ranks = expect_on_cores(trainer, cores, settings.bind)
    expect_num_threads(trainer, settings.threads)
    nodes = values_by_rank(trainer, node_name())
    of_node = [cores_of_rank for cores_of_rank, node in zip(cores_of_ranks, nodes, strict=True) if node == node_name()]
    crowded = binding.are_oversubscribed(of_node, config.cores_per_rank(settings), binding.core_of_threads(), machine.quota_cores())
    return cores_of_ranks, bool(by_rank(trainer, crowded).any())


def expect_on_cores(trainer: Trainer, cores: Set[int], is_bound: bool) -> list[list[int]]:
    """Returns the cores that the threads of each rank run on. All ranks call this.

    Raises RunError, on every rank, where a thread of a rank that is bound may run elsewhere. Those that libraries start for their
    communication inherit the binding of the rank, under every backend. Without a binding of ours it is the launcher's, whatever that is.
    """
    cores = cores if is_bound else os.sched_getaffinity(0)
    pairs = values_by_rank(trainer, [sorted(cores), sorted((is_bound and misplaced(cores)) or cores)])
    for rank, (cores_of_rank, cores_of_threads) in enumerate(pairs):
        if cores_of_rank != cores_of_threads:
            raise RunError(
                f"rank {rank} has {cores_text(cores_of_rank)}, and a thread of it may run on {cores_text(cores_of_threads)}: a library or "
                "the launcher has changed its binding; turn that off, or leave the binding to it with --no-bind"
            )
    return [cores_of_threads for _, cores_of_threads in pairs]


def expect_num_threads(trainer: Trainer, num_threads: int) -> None:
    """Raises RunError, on every rank, where a framework computes with another number of threads on one of them. All ranks call this."""
    computing = trainer.describe_device().num_threads
    counts = by_rank(trainer, num_threads if computing is None else computing)
    if wrong := np.flatnonzero(counts != num_threads).tolist():
        raise RunError(f"rank {wrong[0]} computes with {counts[wrong[0]]:.0f} threads, and --threads is {num_threads}")


def misplaced(cores: Set[int]) -> Set[int] | None:
    """Returns the cores of the first thread of this process that may run on others; None where there is none.

    The main thread has all of the cores, and others may have some of them.
    """
    main = os.getpid()
    for thread in sorted(map(int, os.listdir("/proc/self/task")), key=lambda thread: thread != main):
        try:
            allowed = os.sched_getaffinity(thread)
        except ProcessLookupError:
            continue
        if not allowed <= cores or (thread == main and allowed != cores):
            return allowed
    return None


def cores_text(cores: Collection[int]) -> str:
    """Names cores in words."""
    return f"core{'s' * (len(cores) != 1)} {', '.join(map(str, cores))}"
