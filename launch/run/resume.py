"""Finds whether a matrix is new or resumes one that was interrupted, its seeds, and which of its jobs are still to be run.

A folder of records has a file for each identity of a matrix, with what the latest matrix of this identity runs. It is locked for as long as
that matrix runs. The seeds of a new matrix follow those of the records of the same runs.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from common.command_line import flag
from common.config import NAME_OF_RUN, Seed, Settings, as_json
from common.errors import UserError
from common.record import files
from common.record.definition import Record
from common.record.files import Damaged
from launch.run import lock, processes, runner, supervisor
from launch.run.plan import Job

# The runs of a matrix that was killed are ended within twice this time.
LIMIT_SECONDS = 3 * processes.GRACE_SECONDS
ENDING = ".matrix"
DIGEST_CHARACTERS = 16


@dataclass(frozen=True)
class MatrixFile:
    """What the file of a matrix contains: its identity, the beginning of the names of its runs, and their first seed."""

    identity: dict[str, Any]
    stamp: Annotated[str, NAME_OF_RUN]
    first_seed: Seed


def identity(
    backends: Iterable[str], workloads: Iterable[str], sizes: Iterable[int], ranks_per_node: int | None, settings: Settings
) -> dict[str, Any]:
    """Returns what a matrix runs, as JSON. A start with the same identity can resume it, also with more repeats."""
    axes = {"backends": sorted(backends), "workloads": sorted(workloads), "sizes": sorted(sizes), "ranks_per_node": ranks_per_node}
    return axes | as_json(settings)


def path_of(folder: Path, identity: Mapping[str, Any]) -> Path:
    """Returns the path of the file of an identity."""
    digest = hashlib.sha256(json.dumps(_without_defaults(identity), sort_keys=True).encode()).hexdigest()
    return folder / f"{digest[:DIGEST_CHARACTERS]}{ENDING}"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[BinaryIO]:
    """Opens and locks the file of an identity: two matrices at once would run the same. Raises UserError where a process has locked it."""
    with files.writing(path.parent):
        file = path.open("ab", buffering=0)
    with file:
        if not lock.try_lock(file.fileno(), path):
            raise UserError(f"the same matrix runs with its records in {path.parent}; wait for it, or give another folder with --results")
        yield file


def write(file: BinaryIO, content: MatrixFile) -> None:
    """Writes what a matrix runs into its file. Raises UserError where the folder cannot be written."""
    with files.writing(Path(file.name).parent):
        file.truncate(0)
        file.write(json.dumps(dataclasses.asdict(content)).encode() + b"\n")
        os.fsync(file.fileno())


def read(path: Path) -> MatrixFile | None:
    """Reads the file of a matrix; returns None where there is none. One that is damaged is reported and left aside."""
    # Imported here, since it takes a tenth of a second.
    from pydantic import TypeAdapter, ValidationError

    try:
        # Opening a pipe would wait for its writer.
        text = path.read_text(errors="replace") if path.is_file() else "" if not path.exists() else "no file"
        return TypeAdapter(MatrixFile).validate_json(text) if text else None
    except OSError as problem:
        reason = problem.strerror or str(problem)
    except ValidationError as invalid:
        reason = f"no file of a matrix: {files.first_mistake(invalid, 'file')}"
    files.report_damaged([Damaged(path, reason)])
    return None


def matrices_in(folder: Path) -> dict[Path, MatrixFile]:
    """Returns what the matrices in a folder run, by the paths of their files, the latest last."""
    contents = {path: content for path in folder.glob(f"*{ENDING}") if (content := read(path))}
    return dict(sorted(contents.items(), key=lambda path_and_content: path_and_content[1].stamp))


def describe_none(folder: Path, matrices: Iterable[MatrixFile], identity: Mapping[str, Any]) -> str:
    """Describes why a new matrix begins though one was to be resumed: how the last one of those in the folder differs from its identity."""
    reason = ""
    for latest in list(matrices)[-1:]:
        reason = f" ({latest.stamp} has other {', '.join(differences(latest.identity, identity))})"
    return f"there is no matrix to resume in {folder}{reason}; a new one begins"


def differences(content: Mapping[str, Any], identity: Mapping[str, Any]) -> list[str]:
    """Returns the options in which an identity in a file differs from another."""
    earlier, later = _without_defaults(content), _without_defaults(identity)
    return [name if name == "sizes" else flag(name) for name in identity if earlier.get(name) != later.get(name)]


def first_seed(jobs: list[Job], present: Iterable[Record]) -> int:
    """Returns the first seed of a new matrix: the next after the last of the records of any of its runs, or the default."""
    runs = {(job.backend, job.settings.workload, job.num_ranks) for job in jobs}
    drawn = [record.seed for record in present if (record.backend, record.workload, record.num_ranks) in runs]
    return max([*drawn, Settings.seed - 1]) + 1


def named(jobs: Iterable[Job], stamp: str, first_seed: int) -> list[Job]:
    """Returns the jobs with names that begin with a stamp, and with the seeds from the first one on.

    So the verdicts of two matrices are from different trainings.
    """
    named_jobs = []
    for job in jobs:
        run_id, seed = f"{stamp}-{job.settings.run_id}", first_seed + job.settings.repeat
        named_jobs.append(job._replace(settings=dataclasses.replace(job.settings, run_id=run_id, seed=seed)))
    return named_jobs


def divided(jobs: Iterable[Job]) -> tuple[list[Record], list[Job]]:
    """Returns the records of jobs that have a result, and the jobs that have none. A run that diverged has one: it would diverge again.

    A result of another device than the job's is none: a matrix may be resumed on another node. A run that has kept a checkpoint goes on
    from it. A control is not missing where the run that it is compared with has a result: they are to run side by side.
    """
    records: list[Record] = []
    missing: list[Job] = []
    for job in jobs:
        path = runner.record_path(job)
        record = files.read(path) if path.exists() else None
        if record and record.status in ("ok", "diverged") and job.settings.device in ("auto", record.settings.device):
            records.append(record)
        else:
            goes_on = files.checkpoint_folder(job.settings).exists() and not job.settings.timeline
            missing.append(job._replace(settings=dataclasses.replace(job.settings, resume=goes_on)))
    measured_now = {_run_of(job) for job in missing if not (job.settings.control or job.settings.timeline or job.settings.trace)}
    return records, [job for job in missing if not job.settings.control or _run_of(job) in measured_now]


def _run_of(job: Job) -> tuple[str, str, int, int]:
    """Returns what a run and its controls have in common: workload, backend, number of ranks and repeat."""
    return job.settings.workload, job.backend, job.num_ranks, job.settings.repeat


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


def _without_defaults(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an identity without the settings that have their defaults, as also those do that are newer than the file of a matrix."""
    defaults = as_json(Settings())
    return {name: value for name, value in identity.items() if name not in defaults or value != defaults[name]}
