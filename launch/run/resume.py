"""A matrix that was interrupted: which one it was, and what of it is still to be run."""

import re
import time

from common import workloads
from common.command_line import flag
from common.config import as_json
from common.errors import UserError
from common.record import records
from launch.run import processes, runner, supervisor

# The runs of a matrix that was killed are ended within twice this time.
LIMIT_SECONDS = 3 * processes.GRACE_SECONDS
RECORD = re.compile(r"(\d{8}-\d{6})-.+-n\d+-r\d+\.json")


def last_stamp(folder):
    """The stamp of the last matrix that has a record in the folder. Raises UserError where there is none."""
    stamps = [match[1] for path in folder.glob("*.json") if (match := RECORD.fullmatch(path.name))]
    if not stamps:
        raise UserError(f"there is no matrix in {folder} to resume; leave out --resume, or give its folder with --results and --machine")
    return max(stamps)


def divided(jobs):
    """Returns (records of the jobs that are completed, the jobs that are not): these are run, or run again.

    Raises UserError where a record was made with other settings than its job has now.
    """
    done, missing = [], []
    for job in jobs:
        path = runner.record_path(job)
        record = records.read(path) if path.exists() else None
        if record:
            expect_same(path, as_json(record.settings), as_json(workloads.resolve(job.settings, job.degree)))
        if record and record.status == "ok":
            done.append(record)
        else:
            missing.append(job)
    return done, missing


def wait_until_ended(jobs, limit_seconds=LIMIT_SECONDS):
    """Waits until no job has a process on this node: two runs would write one record. Raises UserError where that takes too long.

    After a matrix was killed, its run takes some seconds to end.
    """
    marks = {runner.mark_of(job) for job in jobs}
    deadline = time.monotonic() + limit_seconds
    while runs := {pid: run for pid, run in supervisor.marked().items() if run in marks}:
        if time.monotonic() > deadline:
            pids = ", ".join(map(str, runs))
            raise UserError(
                f"the run of {next(iter(runs.values()))} has not ended (pids {pids}); wait for it, or end the matrix it belongs to"
            )
        time.sleep(supervisor.POLL_SECONDS)


def expect_same(path, recorded, settings):
    """Raises UserError, naming them, for settings in which a record differs from what is to be run now."""
    if recorded["device"] == "auto":
        # An older matrix left it to each run.
        recorded = recorded | {"device": settings["device"]}
    names = [name for name in settings if recorded[name] != settings[name]]
    if names:
        differences = ", ".join(f"{flag(name)} was {recorded[name]} and is {settings[name]}" for name in names)
        raise UserError(f"{path} is of another matrix ({differences}); give the same settings, or leave out --resume")
