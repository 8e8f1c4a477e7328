"""The comparison of what must be equal on all ranks, by its digests. An error names the ranks whose digest differs."""

import socket
from collections import Counter
from typing import NamedTuple

import numpy as np

from common.errors import RunError
from common.trainer import Trainer

# A host name of Linux has at most 64 bytes.
NAME_BYTES = 64


class OutOfSync(RunError):
    """Something that must be equal on all ranks is not."""


class Comparison(NamedTuple):
    """Whether the digests of any ranks differ, and whether any rank has set its flag."""

    differs: bool
    is_flagged: bool


def compare(trainer: Trainer, digest: bytes, flag: bool = False) -> Comparison:
    """Compares digests of 32 bytes over the ranks. All ranks call this, each with a flag of its own.

    Integers are equal on all ranks if and only if their sum is `size` times the value of each rank. The digest is summed as eight
    32-bit integers, which is exact in float64.
    """
    numbers = _numbers(digest)
    has_unequal_sum = (trainer.sum(numbers) != trainer.ranks.size * numbers).any()
    num_differing, num_flagged = trainer.sum(np.array([has_unequal_sum, flag], dtype=np.float64)).tolist()
    return Comparison(num_differing > 0, num_flagged > 0)


def expect_same(trainer: Trainer, digest: bytes, difference: str, remedy: str) -> None:
    """Raises OutOfSync on every rank, with the differing ranks and their nodes, where the digests differ. All ranks call this.

    The difference is the end of a sentence that begins with "the ranks", such as "have read different data".
    """
    if compare(trainer, digest).differs:
        raise OutOfSync(f"the ranks {difference}: {describe(*_gathered(trainer, digest))}; {remedy}")


def describe(digests: list[bytes], nodes: list[str]) -> str:
    """Names the ranks, and their nodes, whose digest is not the most frequent one. Of equally frequent ones the lowest rank decides."""
    # Counter returns the first of equally frequent digests.
    most_frequent = Counter(digests).most_common(1)[0][0]
    reference = digests.index(most_frequent)
    different = [f"rank {rank} ({nodes[rank]})" for rank, digest in enumerate(digests) if digest != most_frequent]
    shown = different[:8] + ([f"{len(different) - 8} more"] if len(different) > 8 else [])
    return f"{', '.join(shown)} {'has' if len(different) == 1 else 'have'} not the same as rank {reference} ({nodes[reference]})"


def _gathered(trainer: Trainer, digest: bytes) -> tuple[list[bytes], list[str]]:
    """Returns the digest and the name of the node of each rank."""
    name = np.zeros(NAME_BYTES, np.uint8)
    encoded = socket.gethostname().encode()[:NAME_BYTES]
    name[: len(encoded)] = list(encoded)
    rows = np.zeros((trainer.ranks.size, len(_numbers(digest)) + NAME_BYTES))
    rows[trainer.ranks.rank] = [*_numbers(digest), *name]
    rows = trainer.sum(rows)
    names = [bytes(row[-NAME_BYTES:].astype(np.uint8)).rstrip(b"\0").decode(errors="replace") for row in rows]
    return [row[:-NAME_BYTES].astype(np.uint32).tobytes() for row in rows], names


def _numbers(digest: bytes) -> np.ndarray:
    return np.frombuffer(digest, np.uint32).astype(np.float64)
