"""Runs that met a machine which was not quiet, and are run again."""

import itertools

from launch.report import noise
from launch.run import runner

MAX_AGAIN = 3


def disturbed(groups, done, percent):
    """The groups of jobs with a run beside which the machine's speed was further from the median of the matrix than `percent`."""
    run_ids = {record.settings.run_id for record, distance_percent in noise.farthest(done) if abs(distance_percent) > percent}
    return [group for group in groups if any(job.settings.run_id in run_ids for _, job in group)]


def set_aside(group, done):
    """Keeps the records of a group that is run again under other names, and takes them from those that are done."""
    for _, job in group:
        path = runner.record_path(job)
        if path.exists():
            paths = (path.with_name(f"{path.name}.disturbed-{number}") for number in itertools.count(1))
            path.rename(next(candidate for candidate in paths if not candidate.exists()))
    run_ids = {job.settings.run_id for _, job in group}
    done[:] = [record for record in done if record.settings.run_id not in run_ids]
