"""The allocation around a matrix: when it ends, and whether a group of runs would end before it. What would not is not begun."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

from launch.run.plan import NumberedJob

# {variable with the number of an allocation: (command that describes one, the place of its end, format of the time)}.
SLURM_TIME, PBS_TIME = "%Y-%m-%dT%H:%M:%S", "%a %b %d %H:%M:%S %Y"
DESCRIPTIONS = {
    "SLURM_JOB_ID": (("scontrol", "show", "job"), re.compile(r"EndTime=(?P<time>\S+)"), SLURM_TIME),
    "PBS_JOBID": (
        ("qstat", "-f"),
        re.compile(r"Resource_List\.walltime = (?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)(?:.|\n)*\bstime = (?P<time>.+)"),
        PBS_TIME,
    ),
}
ANSWER_SECONDS = 30

# Epochs to a target differ from seed to seed, and the page is written when all runs have ended.
MARGIN = 1.3


def end_time() -> float | None:
    """Returns the end in seconds since 1970; None outside an allocation, for one without an end, and without an answer to the question."""
    for variable, (command, pattern, time_format) in DESCRIPTIONS.items():
        if name := os.environ.get(variable):
            try:
                process = subprocess.run([*command, name], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
                match = pattern.search(process.stdout)
                if match is None:
                    return None
                return time.mktime(time.strptime(match["time"], time_format)) + _limit_seconds(**match.groupdict())
            except (OSError, subprocess.TimeoutExpired, ValueError):
                return None
    return None


def _limit_seconds(hours: str = "0", minutes: str = "0", seconds: str = "0", **_: str) -> int:
    """Returns the time limit of an allocation whose batch system gives its start."""
    return (int(hours) * 60 + int(minutes)) * 60 + int(seconds)


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


def describe_left(jobs: Iterable[NumberedJob]) -> str:
    """Describes the jobs that were not begun, and the command that runs them."""
    arguments = sys.argv[1:] if "--resume" in sys.argv else [*sys.argv[1:], "--resume"]
    runs = ", ".join(str(job.settings.run_id) for _, job in jobs)
    command = shlex.join(["launch/matrix.sh", *arguments])
    return f"left, since the allocation would end before them: {runs}\nrun them in another one: {command}"


def _sizes_of(group: Sequence[NumberedJob]) -> tuple[str, frozenset[int]]:
    return group[0][1].settings.workload, frozenset(job.num_ranks for _, job in group)
