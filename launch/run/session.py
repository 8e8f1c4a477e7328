"""The runs of a matrix: group after group, shown while they run, with the report of those that are done."""

from __future__ import annotations

import functools
import itertools
import math
import os
import secrets
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common.process import binding, control_groups
from common.record.definition import Record
from launch.launchers import allocation_end
from launch.launchers.commands import Launcher
from launch.report import live, noise, repeats, widths
from launch.report.widths import Width
from launch.run import room, runner, turns
from launch.run.display import Display
from launch.run.kept_products import Products
from launch.run.plan import Job, NumberedJob, groups
from launch.run.remaining import Remaining, describe
from launch.run.turns import Run

if TYPE_CHECKING:
    from launch.run.matrix_options import Matrix

MAX_ATTEMPTS = 3


def run_all(
    matrix: Matrix, run_records: list[Record], jobs: Sequence[Job], launcher: Launcher, page: Path, products: Products | None = None
) -> int:
    """Runs the jobs, those of a group side by side, shows them with those that are done, and returns the exit status.

    `products`: what launch/run/products.py has measured, for the records.
    """
    # A verification has a few steps, and runs of other batch sizes.
    has_report = not matrix.verify
    remaining = Remaining(allocation_end.end())
    left: list[NumberedJob] = []
    groups_run: list[list[NumberedJob]] = []
    try:
        with Display(len(jobs)) as display:
            for lines, group in needed(matrix, jobs, run_records):
                for line in lines:
                    display.print_line(line)
                if not group:
                    continue
                if run_records and has_report:
                    live.write_page(page, run_records)
                if not remaining.has_time_for(group):
                    left += group
                    continue
                with remaining.timed(group):
                    run_group(group, launcher, matrix.time_limit, display, run_records, products)
                groups_run.append(group)
            run_again(matrix, groups_run, launcher, display, run_records, remaining, products)
    finally:
        if run_records and has_report:
            live.conclude(page, run_records, links_to)
        if unrecorded := without_final_record([job for group in groups_run for _, job in group]):
            print(f"without a final record: {', '.join(unrecorded)}")
        if left:
            print(describe(left))
        if failed_at_start(run_records):
            print(f"failed before the first step; what this machine lacks: {shlex.join(['launch/matrix.sh', *sys.argv[1:], '--check'])}")
    all_ok = all(record.status == "ok" and not record.launcher_error for record in run_records)
    return 0 if all_ok and not left and not unrecorded else 1


def links_to(page: Path) -> list[str]:
    """Returns where the page of a matrix is, and the command that prints all of its tables."""
    tables = f"all tables: python -m launch.compare {page.with_suffix('')}-*.json --full"
    return [f"page: {page}", tables] if page.exists() else [tables]


def without_final_record(jobs: Iterable[Job]) -> list[str]:
    """Returns the names of the runs of jobs that have no record on disk of how they ended, such as where the disk is full."""
    run_records = {str(job.settings.run_id): runner.recorded(job) for job in jobs}
    return [run_id for run_id, record in run_records.items() if record is None or record.status == "started"]


def failed_at_start(run_records: Iterable[Record]) -> bool:
    """Returns whether a run failed before its first step, for another reason than that it was interrupted."""
    return any(record.status == "failed" and record.pids_by_rank is None and record.error != "interrupted" for record in run_records)


def needed(matrix: Matrix, jobs: Iterable[Job], run_records: Sequence[Record]) -> Iterator[tuple[Sequence[str], list[NumberedJob]]]:
    """Yields the groups to be run, with --until without jobs of a workload and size whose intervals are narrow before their repeat.

    A group without any other is empty. With the first group of a repeat come lines about the intervals.
    """
    measured: dict[tuple[str, int], Width] = {}
    repeat, num_before, until = 0, 0, matrix.run.until
    num_cores = min(binding.num_cores(os.sched_getaffinity(0), binding.core_of_threads()), control_groups.quota_cores() or math.inf)
    for group in groups(jobs, matrix.side_by_side, num_cores):
        first, lines = group[0], []
        if until and first.settings.repeat != repeat:
            repeat, measured = first.settings.repeat, widths.by_size(run_records)
            lines = widths.describe(measured, until, matrix.repeats)
        wide = [
            (number, job)
            for number, job in enumerate(group, num_before + 1)
            if not until or (width := measured.get((job.settings.workload, job.num_ranks))) is None or width.percent > until
        ]
        yield lines, wide
        num_before += len(group)


def run_again(
    matrix: Matrix,
    groups_run: Sequence[Sequence[NumberedJob]],
    launcher: Launcher,
    display: Display,
    run_records: list[Record],
    remaining: Remaining,
    products: Products | None,
) -> None:
    """Runs the groups again that met a machine which was not quiet: with --quiet-limit, and once those of disturbed repeats."""

    def run(disturbed: Iterable[Sequence[NumberedJob]], reason: str) -> None:
        for group in filter(remaining.has_time_for, disturbed):
            display.print_line(f"again, since {reason}: {', '.join(str(job.settings.run_id) for _, job in group)}")
            set_aside(group, run_records)
            run_group(group, launcher, matrix.time_limit, display, run_records, products)

    if (percent := matrix.quiet_limit) is not None:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            slow = beside_other_speeds(groups_run, run_records, percent)
            run(slow, f"the machine was not quiet ({attempt} of at most {MAX_ATTEMPTS})")
    if matrix.repeat_disturbed:
        run(of_disturbed_repeats(groups_run, run_records), "its repeat was disturbed")


def beside_other_speeds(
    groups_run: Iterable[Sequence[NumberedJob]], run_records: Iterable[Record], percent: float
) -> list[Sequence[NumberedJob]]:
    """Returns the groups with a run beside which the machine's speed was further from the median of the matrix than `percent`."""
    return having(groups_run, (farthest.record for farthest in noise.farthest(run_records) if abs(farthest.percent) > percent))


def of_disturbed_repeats(groups_run: Iterable[Sequence[NumberedJob]], run_records: Iterable[Record]) -> list[Sequence[NumberedJob]]:
    """Returns the groups with runs of a disturbed repeat."""
    return having(groups_run, (run.record for repeat in repeats.disturbed(run_records) for run in repeat.runs))


def having(groups_run: Iterable[Sequence[NumberedJob]], run_records: Iterable[Record]) -> list[Sequence[NumberedJob]]:
    """Returns the groups with a run that has one of the records."""
    run_ids = {record.settings.run_id for record in run_records}
    return [group for group in groups_run if any(job.settings.run_id in run_ids for _, job in group)]


def set_aside(group: Sequence[NumberedJob], run_records: list[Record]) -> None:
    """Keeps the records of a group that is run again under other names, and takes them from those that are done."""
    for _, job in group:
        path = runner.record_path(job)
        if path.exists():
            paths = (path.with_name(f"{path.name}.disturbed-{number}") for number in itertools.count(1))
            path.rename(next(candidate for candidate in paths if not candidate.exists()))
    run_ids = {job.settings.run_id for _, job in group}
    run_records[:] = [record for record in run_records if record.settings.run_id not in run_ids]


def run_group(
    group: Sequence[NumberedJob],
    launcher: Launcher,
    time_limit_seconds: float,
    display: Display,
    run_records: list[Record],
    products: Products | None,
) -> None:
    """Runs jobs side by side and adds their records to those that are done, also where it is interrupted."""
    ended: set[int] = set()
    # A name that nobody can guess: the folder is open to all users. The first run makes the file.
    turn_share = Path(tempfile.gettempdir()) / f"tandem-turn-share-{secrets.token_hex(16)}"

    def start(number: int, job: Job) -> Run[Record]:
        display.begin(number, job)
        on_progress = functools.partial(display.progress, number, job)
        return runner.run_job(job, launcher, time_limit_seconds, on_progress, turn_share if len(group) > 1 else None, products)

    def on_end(index: int, record: Record) -> None:
        ended.add(index)
        run_records.append(record)
        display.finish(*group[index], record)

    display.begin_group(group)
    try:
        starts = [functools.partial(start, *numbered) for numbered in group]
        turns.side_by_side(starts, room.has_room, on_end)
        display.end_group()
    except KeyboardInterrupt:
        interrupted = [runner.recorded(job) for index, (_, job) in enumerate(group) if index not in ended]
        run_records += filter(None, interrupted)
        raise
    finally:
        turn_share.unlink(missing_ok=True)
