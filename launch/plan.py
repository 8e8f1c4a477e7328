"""The axes of a matrix -> the runs it is made of. Pure."""

import dataclasses
from typing import NamedTuple

from common import variants
from common.config import Settings
from common.errors import UserError

# The plain single-process run: it has no other size, and every speed-up is measured against it.
BASELINE = "single"


class Job(NamedTuple):
    """One run: a backend at a number of ranks, `ranks_per_node` of them on each node, with all its settings."""

    backend: str
    ranks: int
    ranks_per_node: int
    settings: Settings


def plan(backends, workloads, sizes, repeats, ranks_per_node, settings, stamp):
    """The jobs of a matrix in the order they run: repeats interleave, so that slow drift of a machine hits all alike.

    Repeat r has seed + r. `stamp` begins every run's name. `ranks_per_node` None: all ranks on one node. Where timelines or
    traces are wanted each job comes without, to be measured, and then with them.
    Raises UserError for axes that make no runs.
    """
    for name, values in (("backend", backends), ("workload", workloads), ("size", sizes)):
        if not values:
            raise UserError(f"no {name} is left to run")
        doubled = sorted({str(value) for value in values if values.count(value) > 1})
        if doubled:
            raise UserError(f"{name} {', '.join(doubled)} is given twice")
    if min(sizes) < 1:
        raise UserError(f"size {min(sizes)} is no number of ranks; sizes are whole numbers from 1")
    if repeats < 1:
        raise UserError(f"--repeats is {repeats}; it must be a whole number from 1")
    if ranks_per_node is not None and ranks_per_node < 1:
        raise UserError(f"--ranks-per-node is {ranks_per_node}; it must be a whole number from 1")
    jobs = []
    for repeat in range(repeats):
        for workload in workloads:
            for ranks in sorted({1, *sizes} if BASELINE in backends else sizes):
                for backend in backends:
                    if ranks == 1 if backend == BASELINE else ranks in sizes:
                        run_id = f"{stamp}-{workload}-{backend}-n{ranks}-r{repeat}"
                        own = dataclasses.replace(settings, workload=workload, seed=settings.seed + repeat, repeat=repeat)
                        runs = [dataclasses.replace(own, timeline=False, trace=None, run_id=run_id)]
                        if settings.timeline or settings.trace:
                            runs.append(dataclasses.replace(own, run_id=f"{run_id}-traced"))
                        placed = ranks, min(ranks, ranks_per_node or ranks)
                        jobs += [Job(backend, *placed, variants.settings_of(backend, run)) for run in runs]
    return jobs
