"""What the accuracies of many runs say about a target: which runs reach it, in how many epochs, and which target to choose."""

import itertools
from typing import NamedTuple

# From one size to the next. With more, a larger size would take more steps, and so could never be faster.
MAX_GROWTH = 2.0
# The fault of a run that is as it should be.
CORRECT = "correct"


class Curve(NamedTuple):
    """Accuracy after each epoch of a run that trains as `size` ranks do."""

    learning_rate: float
    fault: str
    size: int
    seed: int
    accuracies: tuple[float, ...]


class Choice(NamedTuple):
    """A learning rate and a target that every correct run reaches, and how many of the broken runs reach it too."""

    learning_rate: float
    target: float
    max_growth: float
    most_epochs: int
    num_reached_broken: int
    num_broken: int


def epochs_to(accuracies, target):
    """Number of epochs to the first accuracy that meets the target; None where none does."""
    return next((epoch for epoch, accuracy in enumerate(accuracies, 1) if accuracy >= target), None)


def epochs_by_size(curves, target):
    """{size: epochs of each run to the target, None where a run does not reach it}, by size."""
    epochs = {}
    for curve in sorted(curves, key=lambda curve: (curve.size, curve.seed)):
        epochs.setdefault(curve.size, []).append(epochs_to(curve.accuracies, target))
    return epochs


def growth(by_size):
    """The largest ratio of mean epochs from one size to the next; 1.0 for one size, None where a run does not reach the target."""
    if any(None in epochs for epochs in by_size.values()):
        return None
    means = [sum(epochs) / len(epochs) for epochs in by_size.values()]
    return max((later / earlier for earlier, later in itertools.pairwise(means)), default=1.0)


def choices(curves, targets):
    """Every learning rate and target that all correct runs reach, with a growth of at most MAX_GROWTH, the best first.

    The best is reached by the fewest broken runs; of those it has the highest target; of those it needs the fewest epochs.
    """
    chosen = []
    for learning_rate in sorted({curve.learning_rate for curve in curves}):
        runs = [curve for curve in curves if curve.learning_rate == learning_rate]
        correct, broken = [run for run in runs if run.fault == CORRECT], [run for run in runs if run.fault != CORRECT]
        for target in targets:
            by_size = epochs_by_size(correct, target)
            most = growth(by_size)
            if most is not None and most <= MAX_GROWTH:
                num_reached = sum(epochs_to(run.accuracies, target) is not None for run in broken)
                chosen.append(Choice(learning_rate, target, most, max(map(max, by_size.values())), num_reached, len(broken)))
    return sorted(chosen, key=lambda choice: (choice.num_reached_broken, -choice.target, choice.most_epochs))


def cell(epochs):
    """The epochs of some runs in few characters: their range, and how many of them reached the target where some did not."""
    reached = [number for number in epochs if number is not None]
    if not reached:
        return "none"
    span = f"{min(reached)}" if min(reached) == max(reached) else f"{min(reached)}-{max(reached)}"
    return span if len(reached) == len(epochs) else f"{span} ({len(reached)} of {len(epochs)})"
