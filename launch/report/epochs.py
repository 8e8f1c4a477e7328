"""The test that no backend needs more epochs to the target than the others."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from launch.report import table
from launch.report.entries import Entry

# For each seed the epochs to the target, by the backends whose trainings are bitwise the same.
Block = Mapping[tuple[str, ...], int]

# How likely it is to find any backend to need more epochs where all need the same.
ERROR_RATE = 0.05


class MoreEpochs(NamedTuple):
    """A backend that needs more epochs than the others: its mean, the mean of the others in the same blocks, and the p-value."""

    backend: str
    mean: float
    mean_of_others: float
    p_value: float


def needing_more(blocks: Sequence[Block]) -> list[MoreEpochs]:
    """Returns the backends that need more epochs than the others.

    If all backends train the same thing, each of a block's numbers is as likely as any other for a backend. The test is exact and
    one-sided: it gives the probability that a backend's sum over the blocks is at least as large as it is, where all ways to permute the
    numbers within the blocks are equally likely. The level is corrected for the number of backends (Bonferroni).
    """
    backends = sorted({backend for block in blocks for equal_backends in block for backend in equal_backends})
    needing = []
    for backend in backends:
        shared = [block for block in blocks if len(block) > 1 and any(backend in equal_backends for equal_backends in block)]
        numbers = [number for block in shared for equal_backends, number in block.items() if backend in equal_backends]
        p_value = at_least(sum(numbers), [list(block.values()) for block in shared])
        if shared and p_value * len(backends) <= ERROR_RATE:
            numbers_of_others = [number for block in shared for equal_backends, number in block.items() if backend not in equal_backends]
            mean_of_others = sum(numbers_of_others) / len(numbers_of_others)
            needing.append(MoreEpochs(backend, sum(numbers) / len(shared), mean_of_others, p_value))
    return needing


def at_least(total: int, choices: Iterable[Sequence[int]]) -> float:
    """Returns the probability that numbers drawn uniformly, one from each list of choices, add up to at least the total."""
    ways = Counter({0: 1})
    for numbers in choices:
        ways = sum((Counter({subtotal + number: count for subtotal, count in ways.items()}) for number in numbers), Counter())
    return sum(count for reached, count in ways.items() if reached >= total) / sum(ways.values())


def blocks_of(entries_at_size: Iterable[Entry]) -> list[Block]:
    """Returns the blocks of the entries of one size.

    Runs of one seed are the same training, also in several matrices, and count once, and so do backends with bitwise the same parameters.
    A run that did not reach the target in all its epochs counts as if it had reached it one epoch later.
    """
    trainings_of: dict[int, dict[str, tuple[int, str]]] = {}
    for entry in entries_at_size:
        for record in entry.from_start:
            number = table.epochs_to_target(record) or len(record.train_seconds) + 1
            digest = record.parameter_digests[-1] if record.parameter_digests else entry.backend
            trainings_of.setdefault(record.seed, {})[entry.backend] = number, digest
    blocks = []
    for trainings in trainings_of.values():
        backends_of: dict[tuple[int, str], list[str]] = {}
        for backend, training in trainings.items():
            backends_of.setdefault(training, []).append(backend)
        blocks.append({tuple(equal_backends): number for (number, _), equal_backends in backends_of.items()})
    return blocks
