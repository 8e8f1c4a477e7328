"""What must be the same on all ranks: its digests are compared, and the ranks whose digest is another are named."""

import socket
from collections import Counter

import numpy as np

from common.errors import RunError

# Of the name of a node in the message; a host name of Linux has at most 64 bytes.
NAME_BYTES = 64


class OutOfSync(RunError):
    """Something that must be the same on all ranks is not."""


def differs(trainer, digest: bytes, others: tuple[bool, ...] = ()) -> np.ndarray:
    """Whether the ranks' digests, of 32 bytes, differ, and whether any rank has each of the `others`. All ranks call this.

    Integers are equal on all ranks if and only if their sum is `size` times each rank's own value. The digest is summed as eight
    32-bit integers, which is exact in float64.
    """
    numbers = _numbers(digest)
    has_other_sum = (trainer.sum(numbers) != trainer.ranks.size * numbers).any()
    return trainer.sum(np.array([has_other_sum, *others], dtype=np.float64)) != 0


def expect_same(trainer, digest: bytes, difference: str, remedy: str) -> None:
    """Compares a digest over the ranks. Raises OutOfSync on every rank where it differs, with the ranks and nodes that have another.

    `difference`: what the ranks have where they differ, after "the ranks". All ranks call this.
    """
    if differs(trainer, digest)[0]:
        raise OutOfSync(f"the ranks {difference}: {describe(*_gathered(trainer, digest))}; {remedy}")


def describe(digests: list[bytes], nodes: list[str]) -> str:
    """Names the ranks whose digest is not that of most ranks, or of rank 0 where as many have another, and their nodes."""
    # The first of the most frequent ones, which of equally frequent ones is that of the lowest rank.
    common = Counter(digests).most_common(1)[0][0]
    reference = digests.index(common)
    different = [f"rank {rank} ({nodes[rank]})" for rank, digest in enumerate(digests) if digest != common]
    shown = different[:8] + ([f"{len(different) - 8} more"] if len(different) > 8 else [])
    return f"{', '.join(shown)} {'has' if len(different) == 1 else 'have'} not the same as rank {reference} ({nodes[reference]})"


def _gathered(trainer, digest: bytes) -> tuple[list[bytes], list[str]]:
    """The digest and the name of the node of each rank."""
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
