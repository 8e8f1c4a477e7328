"""The runs of a matrix: group after group, shown while they run, with the report of those that are done.

What would not end before the allocation around the matrix does is not begun.
"""

import contextlib
import functools
import itertools
import math
import os
import secrets
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from common.ranks import binding, machine
from common.record.definition import Record
from launch.launchers import batch_systems
from launch.launchers.commands import Launcher
from launch.run import runner, turns
from launch.run.display import Display
from launch.run.options import Matrix
from launch.run.plan import Job, NumberedJob, groups
from launch.run.turns import Run

# Reports the records of a matrix that runs, or has ended.
Report = Callable[[Sequence[Record], bool], object]
# Epochs to a target differ from seed to seed, and the page is written when all runs have ended.
MARGIN = 1.3


def run_all(matrix: Matrix, run_records: list[Record], jobs: Sequence[Job], launcher: Launcher, report: Report) -> int:
    """Runs the jobs, those of a group side by side, shows them while they run, and returns the exit status.

    `report` is called with the records, also those that were done before, and with whether the matrix has ended.
    """
    remaining = Remaining(batch_systems.end_time())
    not_begun: list[NumberedJob] = []
    groups_run: list[list[NumberedJob]] = []
    try:
        with Display(jobs, num_cores()) as display:
            for group in numbered_groups(matrix, jobs):
                if run_records:
                    report(run_records, False)
                if not remaining.has_time_for(group):
                    not_begun += group
                    continue
                with remaining.timed(group):
                    run_group(group, launcher, matrix.time_limit, display, run_records)
                groups_run.append(group)
    finally:
        if run_records:
            report(run_records, True)
        if unrecorded := without_final_record([job for group in groups_run for _, job in group]):
            print(f"without a final record: {', '.join(unrecorded)}")
        if not_begun:
            print(describe_left(not_begun))
        if failed_at_start(run_records):
            print(f"failed before the first step; what this machine lacks: {shlex.join(['launch/matrix.sh', *sys.argv[1:], '--check'])}")
    all_ok = all(record.status == "ok" and not record.launcher_error for record in run_records)
    return 0 if all_ok and not not_begun and not unrecorded else 1


def without_final_record(jobs: Iterable[Job]) -> list[str]:
    """Returns the names of the runs of jobs that have no record on disk of how they ended, such as where the disk is full."""
    run_records = {str(job.settings.run_id): runner.recorded(job) for job in jobs}
    return [run_id for run_id, record in run_records.items() if record is None or record.status == "started"]


def failed_at_start(run_records: Iterable[Record]) -> bool:
    """Returns whether a run failed before its first step, for another reason than that it was interrupted."""
    return any(record.status == "failed" and record.pids_by_rank is None and record.error != "interrupted" for record in run_records)


def numbered_groups(matrix: Matrix, jobs: Iterable[Job]) -> Iterator[list[NumberedJob]]:
    """Yields the groups of jobs that run side by side."""
    numbers = itertools.count(1)
    for group in groups(jobs, matrix.side_by_side, num_cores()):
        yield [(next(numbers), job) for job in group]


def num_cores() -> float:
    """Returns the number of cores that the runs of this node share."""
    return min(binding.num_cores(os.sched_getaffinity(0), binding.core_of_threads()), machine.quota_cores() or math.inf)


def run_group(
    group: Sequence[NumberedJob],
    launcher: Launcher,
    time_limit_seconds: float,
    display: Display,
    run_records: list[Record],
) -> None:
    """Runs jobs side by side and adds their records to those that are done, also where it is interrupted."""
    ended: set[int] = set()
    # A name that nobody can guess: the folder is open to all users. The first run makes the file.
    turn_share = Path(tempfile.gettempdir()) / f"tandem-turn-share-{secrets.token_hex(16)}"

    def start(number: int, job: Job) -> Run[Record]:
        display.begin(number, job)
        on_progress = functools.partial(display.progress, number, job)
        return runner.run_job(job, launcher, time_limit_seconds, on_progress, turn_share if len(group) > 1 else None)

    def on_end(index: int, record: Record) -> None:
        ended.add(index)
        run_records.append(record)
        display.finish(*group[index], record)

    display.begin_group(group)
    try:
        starts = [functools.partial(start, *numbered) for numbered in group]
        turns.side_by_side(starts, turns.fits_beside, on_end)
        display.end_group()
    except KeyboardInterrupt:
        interrupted = [runner.recorded(job) for index, (_, job) in enumerate(group) if index not in ended]
        run_records += filter(None, interrupted)
        raise
    finally:
        turn_share.unlink(missing_ok=True)


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
