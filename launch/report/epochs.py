"""Time to solution taken apart: epochs to the target times seconds per epoch. Pure."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from launch.report import statistics

# How likely it is to find any backend to need more epochs where all need the same.
ERROR_RATE = 0.05


class MoreEpochs(NamedTuple):
    """A backend that needs more epochs than the others: its mean, that of the others in the same blocks, and the p-value."""

    backend: str
    mean: float
    mean_of_others: float
    p_value: float


def to_target(record):
    """The number of epochs after which a run first met its target; None if it did not, or was resumed from a checkpoint."""
    if record.status != "ok" or record.target is None or record.resumed_after_epochs:
        return None
    reached = (accuracy is not None and accuracy >= record.target for accuracy in record.accuracies)
    return next((number for number, is_reached in enumerate(reached, 1) if is_reached), None)


def seconds(record, num_epochs=None):
    """The mean seconds of an epoch, training and evaluation, of a completed run, or of its first ones; None where they are not known."""
    trained, evaluated = record.train_seconds[:num_epochs], record.eval_seconds[:num_epochs]
    if record.status != "ok" or not trained or None in (*trained, *evaluated):
        return None
    return (sum(trained) + sum(evaluated)) / len(trained)


def seconds_by_turn(record):
    """The seconds of each turn of a run that took turns side by side, evaluations included; empty for any other."""
    if record.status != "ok" or not record.steps_per_turn or None in (*record.step_seconds, *record.eval_seconds):
        return []
    turns = []
    for steps, evaluation in zip(np.split(np.asarray(record.step_seconds), len(record.train_seconds)), record.eval_seconds, strict=False):
        of_epoch = np.add.reduceat(steps, range(0, len(steps), record.steps_per_turn)).tolist()
        turns += [*of_epoch[:-1], of_epoch[-1] + evaluation]
    return turns


def step_seconds(record):
    """The mean step of the timed training, in its median epoch; None where it is not known."""
    trained = statistics.present(record.train_seconds)
    if not trained or not record.step_seconds:
        return None
    return float(np.median(trained)) * len(record.train_seconds) / len(record.step_seconds)


def needing_more(blocks):
    """The MoreEpochs of backends. `blocks`: for each seed {backends whose trainings are bitwise the same: epochs}.

    If all backends train the same thing, each of a block's numbers is as likely as any other for a backend. The test is exact and
    one-sided: the probability that a backend's sum over the blocks is at least as large as it is, all ways to permute the numbers within
    the blocks being equally likely. Corrected for the number of backends (Bonferroni).
    """
    backends = sorted({backend for block in blocks for alike in block for backend in alike})
    needing = []
    for backend in backends:
        shared = [block for block in blocks if len(block) > 1 and any(backend in alike for alike in block)]
        numbers = [number for block in shared for alike, number in block.items() if backend in alike]
        p_value = at_least(sum(numbers), [list(block.values()) for block in shared])
        if shared and p_value * len(backends) <= ERROR_RATE:
            of_others = [number for block in shared for alike, number in block.items() if backend not in alike]
            needing.append(MoreEpochs(backend, sum(numbers) / len(shared), sum(of_others) / len(of_others), p_value))
    return needing


def at_least(total, choices):
    """The probability that numbers drawn uniformly, one from each list of choices, add up to at least the total."""
    ways = Counter({0: 1})
    for numbers in choices:
        ways = sum((Counter({so_far + number: count for so_far, count in ways.items()}) for number in numbers), Counter())
    return sum(count for reached, count in ways.items() if reached >= total) / sum(ways.values())


def blocks_of(entries_at_size):
    """The blocks of the entries of one size: for each seed {backends: epochs to the target}.

    Runs of one seed are the same training, also in several matrices, and count once; and so do backends with bitwise the same parameters.
    A run that did not reach the target in all its epochs needs one more at least.
    """
    trainings_of = {}
    for entry in entries_at_size:
        for record in entry.from_start:
            number = to_target(record) or len(record.train_seconds) + 1
            digest = record.parameter_digests[-1] if record.parameter_digests else entry.backend
            trainings_of.setdefault(record.seed, {})[entry.backend] = number, digest
    blocks = []
    for trainings in trainings_of.values():
        backends_of = {}
        for backend, training in trainings.items():
            backends_of.setdefault(training, []).append(backend)
        blocks.append({tuple(alike): number for (number, _), alike in backends_of.items()})
    return blocks
