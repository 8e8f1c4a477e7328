"""The seeds of a matrix, which follow those that other matrices give the same runs, also where these run at the same moment."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.config import Settings
from common.record.definition import Record
from launch.report import entries
from launch.run import lock
from launch.run.plan import Job

# In the folder of the records: matrices draw one after the other.
LOCK = ".seeds.lock"
# Keys of the file of a matrix: its first seed, how many follow, and [backend, workload, number of ranks] of its runs.
FIRST, NUM_SEEDS, RUNS = "first_seed", "num_seeds", "runs"


@contextlib.contextmanager
def drawing(folder: Path) -> Iterator[None]:
    """Within this context no other matrix draws seeds for runs with their records in the folder."""
    with lock.waited_for(folder / LOCK):
        yield


def first(jobs: list[Job], stamp: str, present: list[Record], begun: dict[str, dict[str, Any]]) -> int:
    """Returns the first seed of the matrix with this stamp: the next after the last seed that another matrix gives any of its runs.

    `present`: the records in its folder. `begun`: what the matrices there run, also those that run now. A matrix that is resumed has the
    seed that it has drawn.
    """
    if FIRST in begun.get(stamp, {}):
        return begun[stamp][FIRST]
    runs = {(job.backend, job.settings.workload, job.num_ranks) for job in jobs}
    contents = {begun_stamp: content for begun_stamp, content in begun.items() if begun_stamp != stamp}
    if stamp in begun:
        # The matrix has not written its seed, and those that came later have drawn after it.
        present = earlier(present, stamp)
        contents = {begun_stamp: content for begun_stamp, content in contents.items() if begun_stamp < stamp}
    drawn = [record.seed for record in present if (record.backend, record.workload, record.num_ranks) in runs]
    for content in contents.values():
        # The file may have another origin.
        with contextlib.suppress(KeyError, TypeError, ValueError):
            if runs & {tuple(run) for run in content[RUNS]}:
                drawn.append(int(content[FIRST]) + int(content[NUM_SEEDS]) - 1)
    return max(drawn, default=Settings.seed - 1) + 1


def noted(jobs: list[Job], first_seed: int, num_repeats: int) -> dict[str, Any]:
    """Returns what the file of a matrix has of its seeds."""
    runs = sorted({(job.backend, job.settings.workload, job.num_ranks) for job in jobs})
    return {FIRST: first_seed, NUM_SEEDS: num_repeats, RUNS: runs}


def earlier(records: list[Record], stamp: str) -> list[Record]:
    """Returns the records of the matrices before the one with this stamp: names of runs begin with the stamp, and so with the time."""
    return [record for record in records if entries.key_of(record).matrix < stamp]


def continued(jobs: list[Job], first_seed: int) -> list[Job]:
    """Returns the jobs with the seeds from the first one on: the verdicts of two matrices are from different trainings."""
    return [job._replace(settings=dataclasses.replace(job.settings, seed=first_seed + job.settings.repeat)) for job in jobs]


def describe(first_seed: int) -> list[str]:
    """Returns lines about a first seed that was drawn, if it is not the default."""
    if first_seed == Settings.seed:
        return []
    return [f"first seed: {first_seed}, after those of earlier matrices; --seed {Settings.seed} repeats these"]
