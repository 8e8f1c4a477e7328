"""Finds whether a matrix is new or resumes one that was interrupted, and which of its jobs are still to be run.

Beside its records a matrix has a file STAMP.matrix with what it runs. It is locked for as long as the matrix runs.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from common.command_line import flag
from common.config import Settings, as_json
from common.errors import UserError
from common.record import reading, records
from common.record.definition import Record
from launch.launchers.commands import allocation
from launch.run import lock, processes, runner, supervisor
from launch.run.plan import Job, stamped

# The runs of a matrix that was killed are ended within twice this time.
LIMIT_SECONDS = 3 * processes.GRACE_SECONDS
ENDING = ".matrix"


class Divided(NamedTuple):
    """Jobs that have a result, as its records, and those that have none: these are run, or run again."""

    records: list[Record]
    missing: list[Job]


class Held(NamedTuple):
    """The stamp of a matrix and its open file, which is locked."""

    stamp: str
    file: BinaryIO


def identity(
    backends: Iterable[str], workloads: Iterable[str], sizes: Iterable[int], ranks_per_node: int | None, settings: Settings
) -> dict[str, Any]:
    """Returns what a matrix runs, as JSON. A start with the same identity can resume it, also with more repeats."""
    axes = {"backends": sorted(backends), "workloads": sorted(workloads), "sizes": sorted(sizes), "ranks_per_node": ranks_per_node}
    return axes | as_json(settings)


@contextlib.contextmanager
def held(folder: Path, stamps: Iterable[str]) -> Iterator[Held]:
    """Holds the first of the stamps whose matrix no process runs; until the context ends no other process resumes it.

    Raises UserError where the folder cannot be written.
    """
    with records.writing(folder):
        stamp, file = next((stamp, file) for stamp in stamps if (file := _locked(folder / f"{stamp}{ENDING}")))
    with file:
        yield Held(stamp, file)


def write(file: BinaryIO, content: Mapping[str, Any]) -> None:
    """Writes what a matrix runs into its file. Raises UserError where the folder cannot be written."""
    with records.writing(Path(file.name).parent):
        file.truncate(0)
        file.write(json.dumps({**content, "allocation": allocation()}).encode() + b"\n")
        os.fsync(file.fileno())


def resumable(folder: Path, matrix: Mapping[str, Any], jobs: Sequence[Job]) -> list[str]:
    """Returns the stamps of the matrices in a folder that a start can resume, the best first. `matrix`: the identity of the start.

    The best is a matrix of this allocation, which its batch system may have requeued, then one with runs to be done, then the latest.
    """
    matrices = begun(folder)

    def rank(stamp: str) -> tuple[bool, bool, str]:
        is_of_allocation = allocation() is not None and matrices[stamp].get("allocation") == allocation()
        return is_of_allocation, bool(divided(stamped(jobs, stamp)).missing), stamp

    return sorted((stamp for stamp, content in matrices.items() if not differences(content, matrix)), key=rank, reverse=True)


def describe_none(folder: Path, matrix: Mapping[str, Any]) -> str:
    """Describes why a new matrix begins though one was to be resumed: how the latest one in the folder differs from its identity."""
    matrices = begun(folder)
    latest = next(reversed(matrices), None)
    if any(not differences(content, matrix) for content in matrices.values()):
        reason = "is running"
    else:
        reason = latest and f"has other {', '.join(differences(matrices[latest], matrix))}"
    return f"there is no matrix to resume in {folder}{f' ({latest} {reason})' if latest else ''}; a new one begins"


def differences(content: Mapping[str, Any], matrix: Mapping[str, Any]) -> list[str]:
    """Returns the options in which the file of a matrix differs from an identity. A setting that is newer than the file has its default."""
    content = as_json(Settings()) | dict(content)
    return [name if name == "sizes" else flag(name) for name, value in matrix.items() if content.get(name) != value]


def divided(jobs: Iterable[Job]) -> Divided:
    """Divides jobs into those that have a result and those that have none. A run that diverged has one: it would diverge again."""
    parts = Divided([], [])
    for job in jobs:
        path = runner.record_path(job)
        record = reading.read(path) if path.exists() else None
        if record and record.status in ("ok", "diverged"):
            parts.records.append(record)
        else:
            parts.missing.append(job)
    return parts


def wait_until_ended(jobs: Iterable[Job], limit_seconds: float = LIMIT_SECONDS) -> None:
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


def begun(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns what the matrices in a folder run, by their stamps, the oldest first."""
    matrices = {}
    for path in sorted(folder.glob(f"*{ENDING}")):
        # The file of another user may not be readable, and that of a matrix which begins now has no content.
        with contextlib.suppress(OSError, ValueError, TypeError):
            matrices[path.stem] = dict(json.loads(path.read_text()))
    return matrices


def _locked(path: Path) -> BinaryIO | None:
    """Opens and locks the file of a matrix; returns None where a process runs the matrix, or where it is another user's."""
    try:
        file = path.open("ab", buffering=0)
    except PermissionError:
        return None
    if lock.try_lock(file.fileno(), path):
        return file
    file.close()
    return None
