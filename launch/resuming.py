"""A matrix that was interrupted: which one it was, and what of it is still to be run."""

import re

from common import records, workloads
from common.config import Settings, as_json, flag
from common.errors import UserError

RECORD = re.compile(r"(\d{8}-\d{6})-.+-n\d+-r\d+\.json")


def last_stamp(folder):
    """The stamp of the last matrix that has a record in the folder. Raises UserError where there is none."""
    found = [match[1] for path in folder.glob("*.json") if (match := RECORD.fullmatch(path.name))]
    if not found:
        raise UserError(
            f"there is no matrix in {folder} to go on with; leave out --resume, or say with --results and --machine where it is"
        )
    return max(found)


def divided(jobs):
    """(records of the jobs that have come to a good end, the jobs that have not): the others are run, or run again.

    Raises UserError where a record was made with other settings than its job has now.
    """
    done, missing = [], []
    for job in jobs:
        path = records.folder(job.settings) / f"{job.settings.run_id}.json"
        record = records.read(path) if path.exists() else None
        if record:
            check(path, record["settings"], as_json(workloads.resolve(job.settings, job.ranks)))
        if record and record["status"] == "ok":
            done.append(record)
        else:
            missing.append(job)
    return done, missing


def check(path, before, now):
    """Raises UserError, naming them, for settings in which a record differs from what is to be run now."""
    # What an older record does not know was at its default.
    before = as_json(Settings()) | before
    differing = [name for name in now if before[name] != now[name]]
    if differing:
        shown = ", ".join(f"{flag(name)} was {before[name]} and is {now[name]}" for name in differing)
        raise UserError(f"{path} is of another matrix ({shown}); give the same settings, or leave out --resume")
