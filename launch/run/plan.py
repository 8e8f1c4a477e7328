"""The jobs of a matrix, from its axes."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple, get_args

from common.backends import has_one_rank, settings_of, without_others
from common.config import Control, Settings, cores_per_rank
from common.cost import parallelism
from common.errors import UserError
from common.workloads import located


class Job(NamedTuple):
    """A run of a matrix: its backend, its number of ranks, ranks per node and settings."""

    backend: str
    num_ranks: int
    ranks_per_node: int
    settings: Settings

    @property
    def num_nodes(self) -> int:
        return -(-self.num_ranks // self.ranks_per_node)

    @property
    def degree(self) -> int:
        """The data-parallel degree. Raises UserError for what the backend cannot train."""
        return parallelism.degree(self.backend, self.settings, self.num_ranks)


def plan(
    backends: Sequence[str],
    workloads: Sequence[str],
    sizes: Sequence[int],
    repeats: int,
    ranks_per_node: int | None,
    settings: Settings,
    with_controls: bool = False,
) -> list[Job]:
    """Returns the jobs of a matrix in the order in which they run. Repeats are the outermost loop, so that drift affects all jobs equally.

    Each repeat begins with another backend, every second one with the largest size: of three copies of one backend that took turns, the one
    that was always started first needed 2 % more time. `ranks_per_node` None: all ranks on one node. With --timeline or
    --trace the jobs of a group run first without it, to be measured, then with it. `with_controls`: at each size of several ranks, the
    first of the backends that train on them runs as each Control too. Raises UserError for invalid or empty axes.
    """
    check(backends, workloads, sizes)
    # A matrix of one size may be one of several jobs, and that of size 1 has what runs in one process.
    in_one_process = {1} if len(sizes) > 1 and any(map(has_one_rank, backends)) else ()
    jobs = []
    for repeat, workload in itertools.product(range(repeats), workloads):
        repeated = dataclasses.replace(settings, **located(workload), repeat=repeat)
        for num_ranks in sorted({*sizes, *in_one_process}, reverse=repeat % 2 == 1):
            of_size = [backend for backend in backends if (num_ranks == 1 if has_one_rank(backend) else num_ranks in sizes)]
            jobs += _jobs_of_size(of_size, num_ranks, min(num_ranks, ranks_per_node or num_ranks), repeated, with_controls)
    return jobs


def _jobs_of_size(backends: Sequence[str], num_ranks: int, ranks_per_node: int, settings: Settings, with_controls: bool) -> list[Job]:
    """Returns the jobs of a workload and repeat at a size: those that are measured, and their controls, then those that are traced."""
    measured = dataclasses.replace(settings, timeline=False, trace=None)
    runs = [(backend, measured, "") for backend in backends]
    if with_controls and num_ranks > 1:
        # A control has no step breakdown, which nobody reads.
        runs += [
            (backend, dataclasses.replace(measured, control=control, step_breakdown=False), f"-{control}")
            for backend in backends[:1]
            for control in get_args(Control)
        ]
    traced = [(backend, settings, "-traced") for backend in backends if settings.timeline or settings.trace]
    jobs = []
    for backend, run_settings, ending in _rotated(runs, settings.repeat) + _rotated(traced, settings.repeat):
        run_id = f"{settings.workload}-{backend}-n{num_ranks}-r{settings.repeat}{ending}"
        named = dataclasses.replace(run_settings, run_id=run_id)
        jobs.append(Job(backend, num_ranks, ranks_per_node, settings_of(backend, without_others(backend, named))))
    return jobs


def _rotated(runs: list[tuple[str, Settings, str]], number: int) -> list[tuple[str, Settings, str]]:
    """Returns the runs with another one first for each number."""
    first = number % max(len(runs), 1)
    return runs[first:] + runs[:first]


def check(backends: Sequence[str], workloads: Sequence[str], sizes: Sequence[int]) -> None:
    """Raises UserError for invalid or empty axes of a matrix."""
    for axis, values in (("backend", backends), ("workload", workloads), ("size", sizes)):
        if not values:
            raise UserError(f"there is no {axis} to run")
        duplicates = sorted({str(value) for value in values if values.count(value) > 1})
        if duplicates:
            raise UserError(f"{axis} {', '.join(duplicates)} is given more than once")
    if len(sizes) == 1 != sizes[0] and all(map(has_one_rank, backends)):
        raise UserError(f"{', '.join(backends)} runs in one process, not in {sizes[0]}; give size 1")


def groups(jobs: Iterable[Job], side_by_side: bool, num_cores: float) -> list[list[Job]]:
    """Groups the jobs that run side by side: the untraced ones of a workload and repeat on one node of `num_cores` cores.

    A size whose ranks share cores has groups of its own: it has no speed-up in the report, and it takes much memory.
    """

    def group_of(job: Job) -> tuple[str, int, int | None, str | None]:
        settings = job.settings
        runs_alone = not side_by_side or settings.timeline or settings.trace or job.num_nodes > 1
        shares_cores = job.ranks_per_node * cores_per_rank(settings) > num_cores
        return settings.workload, settings.repeat, job.num_ranks if shares_cores else None, settings.run_id if runs_alone else None

    return [list(group) for _, group in itertools.groupby(jobs, group_of)]
