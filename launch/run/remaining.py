"""The time that an allocation has left: what would not end within it is not begun."""

import contextlib
import shlex
import sys
import time

# Epochs to a target differ from seed to seed, and the page is written when all runs have ended.
MARGIN = 1.3


class Remaining:
    """How long groups of (number, job) took, beside the end of the allocation in seconds since 1970; None: it does not end."""

    def __init__(self, end):
        self._end, self._seconds = end, {}

    @contextlib.contextmanager
    def timed(self, group):
        """Measures how long the jobs of a group take together."""
        began, sizes = time.monotonic(), _sizes_of(group)
        yield
        self._seconds[sizes] = max(self._seconds.get(sizes, 0.0), time.monotonic() - began)

    def has_time_for(self, group):
        """Whether a group would end in time: one takes as long as the longest of its workload and sizes, else as the longest of all."""
        expected = self._seconds.get(_sizes_of(group)) or max(self._seconds.values(), default=0.0)
        return self._end is None or time.time() + MARGIN * expected < self._end


def describe(left):
    """What to do about the jobs that were not begun, in words."""
    arguments = sys.argv[1:] if "--resume" in sys.argv else [*sys.argv[1:], "--resume"]
    runs = ", ".join(job.settings.run_id for _, job in left)
    command = shlex.join(["launch/matrix.sh", *arguments])
    return f"left, since the allocation would end before them: {runs}\nrun them in another one: {command}"


def _sizes_of(group):
    return group[0][1].settings.workload, frozenset(job.num_ranks for _, job in group)
