"""How long the jobs of a matrix take, as its earlier ones did, and whether they would end before the allocation around it does."""

import math
import os
import time
from collections.abc import Iterable, Sequence

from common.backends import declaration_of
from common.config import cores_per_rank
from common.declarations import COMPUTES_BY
from common.ranks import binding, machine
from launch.run.plan import Job

# Epochs to a target differ from seed to seed, and the page is written when all runs have ended.
MARGIN = 1.3


class Estimate:
    """The seconds that runs last took to start, by framework, and to train, by workload.

    Of a size that did not run yet they are those of the nearest one, and as many times longer as more ranks share a core. `num_cores` are
    those of this node, and `end` is that of the allocation in seconds since 1970; None: it does not end.
    """

    def __init__(self, num_cores: float, end: float | None = None) -> None:
        self._num_cores, self._end = num_cores, end
        # Seconds as of one rank a core, by name and number of ranks.
        self._startup: dict[tuple[str, int], float] = {}
        self._training: dict[tuple[str, int], float] = {}

    def add_startup(self, job: Job, seconds: float) -> None:
        """Notes how long a job took to start."""
        self._startup[framework_of(job), job.num_ranks] = seconds / self._ranks_per_core(job)

    def add_training(self, jobs: Sequence[Job], seconds: float) -> None:
        """Notes how long jobs trained that took turns."""
        for job in jobs:
            self._training[job.settings.workload, job.num_ranks] = seconds / len(jobs) / self._ranks_per_core(job)

    def startup_seconds(self, job: Job) -> float:
        """Returns the seconds that a job takes to start; 0 where none has started."""
        return self._expected(self._startup, framework_of(job), job)

    def seconds(self, jobs: Iterable[Job]) -> float:
        """Returns the seconds that jobs take; 0 where none has ended."""
        if not self._training:
            return 0.0
        return sum(self.startup_seconds(job) + self._expected(self._training, job.settings.workload, job) for job in jobs)

    def has_time_for(self, jobs: Iterable[Job]) -> bool:
        """Returns whether jobs that begin now would end before the allocation does."""
        return self._end is None or time.time() + MARGIN * self.seconds(jobs) < self._end

    def _ranks_per_core(self, job: Job) -> float:
        return max(job.ranks_per_node * cores_per_rank(job.settings) / self._num_cores, 1.0)

    def _expected(self, seconds_by_run: dict[tuple[str, int], float], name: str, job: Job) -> float:
        """Returns the seconds of the same name at the nearest size, or else of another name."""
        if not seconds_by_run:
            return 0.0
        nearest = min(seconds_by_run, key=lambda key: (key[0] != name, abs(key[1] - job.num_ranks)))
        return seconds_by_run[nearest] * self._ranks_per_core(job)


def framework_of(job: Job) -> str:
    """Returns the framework that the processes of a job import."""
    framework = declaration_of(job.backend).framework
    return COMPUTES_BY.get(framework, framework)


def num_cores() -> float:
    """Returns the number of cores that the runs of this node share."""
    return min(binding.num_cores(os.sched_getaffinity(0), binding.core_of_threads()), machine.quota_cores() or math.inf)
