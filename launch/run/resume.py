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
    found = [match[1] for path in folder.glob("*.json") if (match := RECORD.fullmatch(path.name))]
    if not found:
        raise UserError(f"there is no matrix in {folder} to resume; leave out --resume, or give its folder with --results and --machine")
    return max(found)


def divided(jobs):
    """(records of the jobs that are completed, the jobs that are not): these are run, or run again.

    Raises UserError where a record was made with other settings than its job has now.
    """
    done, missing = [], []
    for job in jobs:
        path = runner.record_path(job)
        record = records.read(path) if path.exists() else None
        if record:
            check(path, as_json(record.settings), as_json(workloads.resolve(job.settings, job.degree)))
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
    limit = time.monotonic() + limit_seconds
    while left := {pid: run for pid, run in supervisor.marked().items() if run in marks}:
        if time.monotonic() > limit:
            pids = ", ".join(map(str, left))
            raise UserError(
                f"the run of {next(iter(left.values()))} has not ended (pids {pids}); wait for it, or end the matrix it belongs to"
            )
        time.sleep(supervisor.POLL_SECONDS)


def check(path, before, now):
    """Raises UserError, naming them, for settings in which a record differs from what is to be run now."""
    if before["device"] == "auto":
        # An older matrix left it to each run.
        before = before | {"device": now["device"]}
    differing = [name for name in now if before[name] != now[name]]
    if differing:
        shown = ", ".join(f"{flag(name)} was {before[name]} and is {now[name]}" for name in differing)
        raise UserError(f"{path} is of another matrix ({shown}); give the same settings, or leave out --resume")
