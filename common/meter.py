"""A counter that leaves out what does not belong to the training: the clock of a run, and its energy."""

import contextlib
from collections import defaultdict


class Meter:
    """What `read()`, a growing number or array, has counted since the start outside of `pause`; `paused` has the amounts of the pauses."""

    def __init__(self, read):
        self._read, self._start = read, read()
        self.paused = defaultdict(float)

    def now(self):
        return self._read() - self._start - sum(self.paused.values())

    @contextlib.contextmanager
    def pause(self, reason):
        """Leaves out what is counted within this context. `reason` is the key of its amount in `paused`."""
        begun = self._read()
        yield
        self.paused[reason] += self._read() - begun
