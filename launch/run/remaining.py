"""The time that an allocation has left: what would not end within it is not begun."""

import contextlib
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

from launch.run.plan import NumberedJob

# Epochs to a target differ from seed to seed, and the page is written when all runs have ended.
MARGIN = 1.3


class Remaining:
    """How long groups of jobs took, beside the end of the allocation in seconds since 1970; None: it does not end."""

    def __init__(self, end: float | None) -> None:
        self._end = end
        self._seconds_by_sizes: dict[tuple[str, frozenset[int]], float] = {}

    @contextlib.contextmanager
    def timed(self, group: Sequence[NumberedJob]) -> Iterator[None]:
        """Measures how long the jobs of a group take together."""
        began, sizes = time.monotonic(), _sizes_of(group)
        yield
        self._seconds_by_sizes[sizes] = max(self._seconds_by_sizes.get(sizes, 0.0), time.monotonic() - began)

    def has_time_for(self, group: Sequence[NumberedJob]) -> bool:
        """Returns whether a group would end in time: it takes as long as the longest of its workload and sizes, or else of all."""
        expected_seconds = self._seconds_by_sizes.get(_sizes_of(group)) or max(self._seconds_by_sizes.values(), default=0.0)
        return self._end is None or time.time() + MARGIN * expected_seconds < self._end


def describe(left: Iterable[NumberedJob]) -> str:
    """Describes the jobs that were not begun, and the command that runs them."""
    arguments = sys.argv[1:] if "--resume" in sys.argv else [*sys.argv[1:], "--resume"]
    runs = ", ".join(str(job.settings.run_id) for _, job in left)
    command = shlex.join(["launch/matrix.sh", *arguments])
    return f"left, since the allocation would end before them: {runs}\nrun them in another one: {command}"


def _sizes_of(group: Sequence[NumberedJob]) -> tuple[str, frozenset[int]]:
    return group[0][1].settings.workload, frozenset(job.num_ranks for _, job in group)
