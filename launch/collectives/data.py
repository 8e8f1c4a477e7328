"""What the ranks exchange, so that every element of a result can be checked.

The values are whole numbers below 64. Their sums over 262,144 ranks are exact in float32, so that results need no tolerance.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from common.cost.collectives import COLLECTIVES

# A prime, so that the parts of a buffer, whose lengths are powers of two as a rule, differ.
PATTERN_LENGTH = 8191
HIGHEST = 64
# Fills the room for a result, which no element may keep.
NOTHING = -1.0


class Part(NamedTuple):
    """A part of what a rank receives: elements of a repeated pattern, from the first one on."""

    pattern: np.ndarray
    first: int
    num_elements: int


@functools.cache
def pattern(rank: int) -> np.ndarray:
    """Returns the values that a rank contributes, over and over again. None is 0, which a forgotten element may be."""
    return np.random.default_rng(rank).integers(1, HIGHEST, PATTERN_LENGTH).astype(np.float32)


@functools.cache
def pattern_of_sum(num_ranks: int) -> np.ndarray:
    return functools.reduce(np.add, map(pattern, range(num_ranks)))


def contributed(name: str, rank: int, num_ranks: int, num_elements: int) -> np.ndarray:
    """Returns the array that a rank contributes to a collective of `num_elements` in all."""
    return np.resize(pattern(rank), num_elements // num_ranks if COLLECTIVES[name].sends_part else num_elements)


def room(name: str, num_ranks: int, num_elements: int) -> np.ndarray:
    """Returns an array for what a rank receives."""
    return np.full(num_elements // num_ranks if COLLECTIVES[name].receives_part else num_elements, NOTHING, np.float32)


def expected(name: str, rank: int, num_ranks: int, num_elements: int) -> list[Part]:
    """Returns the parts of what a rank receives, one after the other."""
    part = num_elements // num_ranks
    return {
        "all_reduce": lambda: [Part(pattern_of_sum(num_ranks), 0, num_elements)],
        "all_gather": lambda: [Part(pattern(sender), 0, part) for sender in range(num_ranks)],
        "reduce_scatter": lambda: [Part(pattern_of_sum(num_ranks), rank * part, part)],
        "broadcast": lambda: [Part(pattern(COLLECTIVES[name].root), 0, num_elements)],
        "all_to_all": lambda: [Part(pattern(sender), rank * part, part) for sender in range(num_ranks)],
        "send_recv": lambda: [Part(pattern((rank - 1) % num_ranks), 0, num_elements)],
        "barrier": list,
    }[name]()


def num_wrong(received: np.ndarray, parts: Sequence[Part]) -> int:
    """Counts the elements that are not as expected; missing ones are wrong, and so are surplus ones."""
    size = sum(part.num_elements for part in parts)
    num_differing, begin = abs(len(received) - size), 0
    for values, first, count in parts:
        repeated = np.roll(values, -first)
        for start in range(begin, begin + count, len(values)):
            values_received = received[start : min(start + len(values), begin + count)]
            num_differing += int(np.count_nonzero(values_received != repeated[: len(values_received)]))
        begin += count
    return num_differing
