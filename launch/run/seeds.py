"""The seeds of a matrix, which follow those that other matrices give the same runs, also where these run at the same moment."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from common.config import Settings
from common.record.definition import Record
from launch.run import lock
from launch.run.plan import Job
from launch.run.resume import Begun

# In the folder of the records: matrices draw one after the other.
LOCK = ".seeds.lock"


@contextlib.contextmanager
def drawing(folder: Path) -> Iterator[None]:
    """Within this context no other matrix draws seeds for runs with their records in the folder."""
    with lock.waited_for(folder / LOCK):
        yield


def first(jobs: list[Job], present: Iterable[Record], begun: Iterable[Begun]) -> int:
    """Returns the first seed of a new matrix: the next after the last seed that another matrix gives any of its runs, or the default.

    `present`: the records in its folder. `begun`: what the matrices there run, also those that run now.
    """
    runs = runs_of(jobs)
    drawn = [record.seed for record in present if [record.backend, record.workload, record.num_ranks] in runs]
    drawn += [matrix.first_seed + matrix.num_seeds - 1 for matrix in begun if any(run in runs for run in matrix.runs)]
    return max([*drawn, Settings.seed - 1]) + 1


def runs_of(jobs: Iterable[Job]) -> list[list[str | int]]:
    """Returns the backend, workload and number of ranks of each run of jobs, as the file of a matrix has them."""
    runs = {(job.backend, job.settings.workload, job.num_ranks) for job in jobs}
    return [list(run) for run in sorted(runs)]


def continued(jobs: list[Job], first_seed: int) -> list[Job]:
    """Returns the jobs with the seeds from the first one on: the verdicts of two matrices are from different trainings."""
    return [job._replace(settings=dataclasses.replace(job.settings, seed=first_seed + job.settings.repeat)) for job in jobs]


def describe(first_seed: int) -> list[str]:
    """Returns lines about a first seed that was drawn, if it is not the default."""
    if first_seed == Settings.seed:
        return []
    return [f"first seed: {first_seed}, after those of earlier matrices; --seed {Settings.seed} repeats these"]
