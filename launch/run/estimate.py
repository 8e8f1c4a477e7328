"""How long the jobs of a matrix take, as its earlier ones did, and whether they would end before the allocation around it does."""

import math
import os
import time
from collections.abc import Iterable, Sequence

from common.config import cores_per_rank
from common.ranks import binding, machine
from launch.run.plan import Job

# Epochs to a target differ from seed to seed, and the page is written when all runs have ended.
MARGIN = 1.3


class Estimate:
    """The seconds that a run of each workload and size last took, with its start.

    Of a size that did not run yet they are those of the nearest one, and as many times longer as more ranks share a core. `num_cores` are
    those of this node, and `end` is that of the allocation in seconds since 1970; None: it does not end.
    """

    def __init__(self, num_cores: float, end: float | None = None) -> None:
        self._num_cores, self._end = num_cores, end
        # Seconds as of one rank a core, by workload and number of ranks.
        self._seconds: dict[tuple[str, int], float] = {}

    def add(self, jobs: Sequence[Job], seconds: float) -> None:
        """Notes how long jobs took that ran side by side."""
        for job in jobs:
            self._seconds[job.settings.workload, job.num_ranks] = seconds / len(jobs) / self._ranks_per_core(job)

    def seconds(self, jobs: Iterable[Job]) -> float:
        """Returns the seconds that jobs take; 0 where none has ended."""
        return sum(map(self._seconds_of, jobs)) if self._seconds else 0.0

    def has_time_for(self, jobs: Iterable[Job]) -> bool:
        """Returns whether jobs that begin now would end before the allocation does."""
        return self._end is None or time.time() + MARGIN * self.seconds(jobs) < self._end

    def _ranks_per_core(self, job: Job) -> float:
        return max(job.ranks_per_node * cores_per_rank(job.settings) / self._num_cores, 1.0)

    def _seconds_of(self, job: Job) -> float:
        nearest = min(self._seconds, key=lambda key: (key[0] != job.settings.workload, abs(key[1] - job.num_ranks)))
        return self._seconds[nearest] * self._ranks_per_core(job)


def num_cores() -> float:
    """Returns the number of cores that the runs of this node share."""
    return min(binding.num_cores(os.sched_getaffinity(0), binding.core_of_threads()), machine.quota_cores() or math.inf)
