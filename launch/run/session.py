"""The runs of a matrix: group after group, shown while they run, with the report of those that are done."""

import functools
import itertools
import math
import os
import secrets
import shlex
import sys
import tempfile
from pathlib import Path

from common.process import binding, control_groups
from launch.launchers import allocation_end
from launch.report import live, noise, widths
from launch.run import room, runner, turns
from launch.run.display import Display
from launch.run.plan import Job, groups
from launch.run.remaining import Remaining, describe

MAX_AGAIN = 3


def run_all(matrix, run_records, jobs, launcher, page):
    """Runs the jobs, those of a group side by side, shows them with those that are done, and returns the exit status."""
    remaining, left, groups_run = Remaining(allocation_end.end()), [], []
    try:
        with Display(len(jobs)) as display:
            for group in needed(matrix, jobs, run_records, display):
                if run_records:
                    live.write_page(page, run_records, live.RELOAD_SECONDS)
                if not remaining.has_time_for(group):
                    left += group
                    continue
                with remaining.timed(group):
                    run_group(group, launcher, matrix.time_limit, display, run_records)
                groups_run.append(group)
            if matrix.quiet_limit:
                run_again(matrix, groups_run, launcher, display, run_records, remaining)
    finally:
        if run_records:
            live.write_page(page, run_records)
            live.show(run_records)
            print(f"records: {page.with_suffix('')}-*.json" + (f"\npage: {page}" if page.exists() else ""))
        if unrecorded := without_final_record([job for group in groups_run for _, job in group]):
            print(f"without a final record: {', '.join(unrecorded)}")
        if left:
            print(describe(left))
        if failed_at_start(run_records):
            print(f"failed before the first step; what this machine lacks: {shlex.join(['launch/matrix.sh', *sys.argv[1:], '--check'])}")
    all_ok = all(record.status == "ok" and not record.launcher_error for record in run_records)
    return 0 if all_ok and not left and not unrecorded else 1


def without_final_record(jobs: list[Job]) -> list[str]:
    """The names of the runs of jobs that have no record on disk of how they ended, such as where the disk is full."""
    run_records = {job.settings.run_id: runner.recorded(job) for job in jobs}
    return [run_id for run_id, record in run_records.items() if record is None or record.status == "started"]


def failed_at_start(run_records):
    """Whether a run failed before its first step, for another reason than that it was interrupted."""
    return any(record.status == "failed" and record.pids_by_rank is None and record.error != "interrupted" for record in run_records)


def needed(matrix, jobs, run_records, display):
    """Groups of (number, job); with --until without those of a workload and size whose intervals are narrow before their repeat."""
    measured, repeat, num_before = {}, 0, 0
    num_cores = min(binding.num_cores(os.sched_getaffinity(0), binding.core_of_threads()), control_groups.quota_cores() or math.inf)
    for group in groups(jobs, matrix.side_by_side, num_cores):
        first = group[0]
        if matrix.run.until and first.settings.repeat != repeat:
            repeat, measured = first.settings.repeat, widths.by_size(run_records)
            for line in widths.describe(measured, matrix.run.until, matrix.repeats):
                display.print_line(line)
        wide = [
            (number, job)
            for number, job in enumerate(group, num_before + 1)
            if (width := measured.get((job.settings.workload, job.num_ranks))) is None or width.percent > matrix.run.until
        ]
        if wide:
            yield wide
        num_before += len(group)


def run_again(matrix, groups_run, launcher, display, run_records, remaining):
    """Runs the groups again that met a machine which was not quiet."""
    for attempt in range(1, MAX_AGAIN + 1):
        for group in filter(remaining.has_time_for, disturbed(groups_run, run_records, matrix.quiet_limit)):
            runs = ", ".join(job.settings.run_id for _, job in group)
            display.print_line(f"again, since the machine was not quiet ({attempt} of at most {MAX_AGAIN}): {runs}")
            set_aside(group, run_records)
            run_group(group, launcher, matrix.time_limit, display, run_records)


def disturbed(groups_run, run_records, percent):
    """The groups of jobs with a run beside which the machine's speed was further from the median of the matrix than `percent`."""
    run_ids = {record.settings.run_id for record, distance_percent in noise.farthest(run_records) if abs(distance_percent) > percent}
    return [group for group in groups_run if any(job.settings.run_id in run_ids for _, job in group)]


def set_aside(group, run_records):
    """Keeps the records of a group that is run again under other names, and takes them from those that are done."""
    for _, job in group:
        path = runner.record_path(job)
        if path.exists():
            paths = (path.with_name(f"{path.name}.disturbed-{number}") for number in itertools.count(1))
            path.rename(next(candidate for candidate in paths if not candidate.exists()))
    run_ids = {job.settings.run_id for _, job in group}
    run_records[:] = [record for record in run_records if record.settings.run_id not in run_ids]


def run_group(group, launcher, time_limit_seconds, display, run_records):
    """Runs (number, job)s side by side and adds their records to those that are done, also where it is interrupted."""
    ended = set()
    # A name that nobody can guess: the folder is open to all users. The first run makes the file.
    turn_share = Path(tempfile.gettempdir()) / f"tandem-turn-share-{secrets.token_hex(16)}"

    def start(number, job):
        display.begin(number, job)
        on_progress = functools.partial(display.progress, number, job)
        return runner.run_job(job, launcher, time_limit_seconds, on_progress, turn_share if len(group) > 1 else None)

    def on_end(index, record):
        ended.add(index)
        run_records.append(record)
        display.finish(*group[index], record)

    try:
        starts = [functools.partial(start, *numbered) for numbered in group]
        turns.side_by_side(starts, room.has_room, on_end)
    except KeyboardInterrupt:
        interrupted = [runner.recorded(job) for index, (_, job) in enumerate(group) if index not in ended]
        run_records += filter(None, interrupted)
        raise
    finally:
        turn_share.unlink(missing_ok=True)
