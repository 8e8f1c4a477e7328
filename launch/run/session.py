"""The runs of a matrix: group after group, shown while they run, and then reported.

What would not end before the allocation around the matrix does is not begun.
"""

import functools
import os
import secrets
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from common.declarations import ROOT
from common.record.definition import Record
from launch.launchers import batch_systems
from launch.launchers.commands import Launcher
from launch.run import runner, turns
from launch.run.display import Display
from launch.run.estimate import Estimate, num_cores
from launch.run.options import Matrix
from launch.run.plan import Job, groups
from launch.run.turns import Run

# The program of a matrix, by its path from where it was started; the matrix goes to another folder.
PROGRAM = os.path.relpath(ROOT / "launch" / "matrix.sh") if ROOT.is_relative_to(Path.cwd()) else str(ROOT / "launch" / "matrix.sh")
# Reports the records of a matrix that has ended.
Report = Callable[[Sequence[Record]], object]


def run_all(matrix: Matrix, run_records: list[Record], jobs: Sequence[Job], launcher: Launcher, report: Report) -> int:
    """Runs the jobs, those of a group side by side, shows them while they run, and returns the exit status.

    `report` is called at the end with the records, also those that were done before.
    """
    cores = num_cores()
    estimate = Estimate(cores, batch_systems.end_time())
    not_begun: list[Job] = []
    try:
        with Display(jobs, estimate) as display:
            for group in groups(jobs, matrix.side_by_side, cores):
                if not estimate.has_time_for(group):
                    not_begun += group
                    continue
                run_group(group, launcher, matrix.time_limit, display, run_records)
    finally:
        if run_records:
            report(run_records)
        if not_begun:
            print(describe_left(not_begun))
    all_ok = all(record.status == "ok" and not record.launcher_error for record in run_records)
    return 0 if all_ok and not not_begun else 1


def run_group(
    group: Sequence[Job],
    launcher: Launcher,
    time_limit_seconds: float,
    display: Display,
    run_records: list[Record],
) -> None:
    """Runs jobs side by side and adds their records to those that are done, also where it is interrupted."""
    ended: set[int] = set()
    # A name that nobody can guess: the folder is open to all users. The first run makes the file.
    turns_file = Path(tempfile.gettempdir()) / f"tandem-turns-{secrets.token_hex(16)}"

    def start(job: Job) -> Run[Record]:
        display.begin(job)
        on_progress = functools.partial(display.progress, job)
        return runner.run_job(job, launcher, time_limit_seconds, on_progress, turns_file if len(group) > 1 else None)

    def on_end(index: int, record: Record) -> None:
        ended.add(index)
        run_records.append(record)
        display.finish(group[index], record)

    display.begin_group(group)
    try:
        starts = [functools.partial(start, job) for job in group]
        turns.side_by_side(starts, turns.fits_beside, on_end)
        display.end_group()
    except KeyboardInterrupt:
        interrupted = [runner.recorded(job) for index, job in enumerate(group) if index not in ended]
        run_records += filter(None, interrupted)
        raise
    finally:
        turns_file.unlink(missing_ok=True)


def describe_left(jobs: Iterable[Job]) -> str:
    """Describes the jobs that were not begun, and the command that runs them."""
    arguments = sys.argv[1:] if "--resume" in sys.argv else [*sys.argv[1:], "--resume"]
    runs = ", ".join(str(job.settings.run_id) for job in jobs)
    command = shlex.join([PROGRAM, *arguments])
    return f"left, since the allocation would end before them: {runs}\nrun them in another one: {command}"
