"""A counter that leaves out what does not belong to the training: the clock of a run, and its energy."""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import numpy as np

Amount = TypeVar("Amount", float, np.ndarray)


class Meter(Generic[Amount]):
    """Counts what `read()` has grown by since the start, outside of `pause`. `paused` has the amounts of the pauses, by their reasons."""

    def __init__(self, read: Callable[[], Amount]) -> None:
        self._read, self._start = read, read()
        self.paused: defaultdict[str, Amount | float] = defaultdict(float)

    def now(self) -> Amount:
        return self._read() - self._start - sum(self.paused.values())

    @contextlib.contextmanager
    def pause(self, reason: str) -> Iterator[None]:
        """Leaves out what is counted within this context. Its amount is added to `paused` under the reason."""
        begun = self._read()
        yield
        self.paused[reason] += self._read() - begun
