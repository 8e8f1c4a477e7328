"""Which matrix a start is, a new one or one that was interrupted, and what of it is still to be run.

Beside its records a matrix has a file STAMP.matrix, which says what it runs. It is locked for as long as it runs.
"""

import contextlib
import json
import os
import sys
import time

from common.command_line import flag
from common.config import Settings, as_json
from common.errors import UserError
from common.record import records
from launch.launchers.commands import allocation
from launch.run import lock, processes, runner, supervisor
from launch.run.plan import stamped

# The runs of a matrix that was killed are ended within twice this time.
LIMIT_SECONDS = 3 * processes.GRACE_SECONDS
ENDING = ".matrix"


def identity(backends, workloads, sizes, ranks_per_node, settings):
    """What a matrix runs. A start with the same identity can resume it, also with more repeats."""
    axes = {"backends": sorted(backends), "workloads": sorted(workloads), "sizes": sorted(sizes), "ranks_per_node": ranks_per_node}
    return axes | as_json(settings)


@contextlib.contextmanager
def held(folder, matrix, jobs, resumes):
    """Gives the first stamp of `stamps` whose matrix no process runs; until the context ends no other process resumes it."""
    stamp, file = next((stamp, file) for stamp in stamps(folder, matrix, jobs, resumes) if (file := _locked(folder / f"{stamp}{ENDING}")))
    with file:
        file.truncate(0)
        file.write(json.dumps(matrix | {"allocation": allocation()}) + "\n")
        file.flush()
        os.fsync(file.fileno())
        yield stamp


def stamps(folder, matrix, jobs, resumes):
    """The stamps under which jobs can be run, the best first: with `resumes` those of their matrices in the folder, then a new one.

    `matrix`: its identity. The best is a matrix of this allocation, which its batch system may have requeued, then one with runs to be
    done, then the latest. Prints how the latest of the folder differs where there is nothing to resume.
    """
    begun = dict(sorted(_begun(folder))) if resumes else {}
    resumable = [stamp for stamp, content in begun.items() if not differences(content, matrix)]

    def rank(stamp):
        return allocation() and begun[stamp].get("allocation") == allocation(), bool(divided(stamped(jobs, stamp))[1]), stamp

    yield from sorted(resumable, key=rank, reverse=True)
    if resumes:
        latest = next(reversed(begun), None)
        reason = "is running" if resumable else latest and f"has other {', '.join(differences(begun[latest], matrix))}"
        print(f"there is no matrix to resume in {folder}{f' ({latest} {reason})' if latest else ''}; a new one begins", file=sys.stderr)
    yield records.new_stamp()


def differences(content, matrix):
    """The names, as options, in which what a matrix runs differs from an identity. A setting that is new since has its default."""
    content = as_json(Settings()) | content
    return [name if name == "sizes" else flag(name) for name, value in matrix.items() if content.get(name) != value]


def divided(jobs):
    """Returns (records of the jobs that have a result, the jobs that have none): these are run, or run again.

    A run that diverged would do so again.
    """
    run_records, missing = [], []
    for job in jobs:
        path = runner.record_path(job)
        record = records.read(path) if path.exists() else None
        if record and record.status in ("ok", "diverged"):
            run_records.append(record)
        else:
            missing.append(job)
    return run_records, missing


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


def _begun(folder):
    """(stamp, what it runs) of the matrices in a folder."""
    for path in folder.glob(f"*{ENDING}"):
        # That of another user may not be readable, and one that begins now has no content.
        with contextlib.suppress(OSError, ValueError, TypeError):
            yield path.stem, dict(json.loads(path.read_text()))


def _locked(path):
    """The open file of a matrix, locked; None where a process runs the matrix, or where it is another user's."""
    try:
        file = path.open("a+")
    except PermissionError:
        return None
    if lock.is_locked_here(file.fileno(), path):
        return file
    file.close()
    return None
