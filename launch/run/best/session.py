"""The searches of a matrix with --best: for each backend, workload and size one run after the other, with a line for each, and the table.

Their records are in a folder of their own, and a run that has a record there is not made again.
"""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from common import workloads
from common.backends import settings_of_library
from common.config import NO_SETTING
from common.cost import state_memory
from common.process import gpus, machine
from common.record import records
from common.record.definition import Record
from common.words import ranks_of
from launch.launchers.commands import Launcher
from launch.run import allocation, runner, turns
from launch.run.best import search, table
from launch.run.best.search import Cell, Measured, Trial
from launch.run.plan import Job

# Below the folder of a matrix's records.
FOLDER = "best"


class Options(NamedTuple):
    """How a matrix searches: the repeats of each pair, the time limit of a run, and the memory of a rank, None for what is free."""

    num_pairs: int
    time_limit_seconds: float
    limit_bytes: float | None


def run(jobs: Iterable[Job], stamp: str, launcher: Launcher, options: Options, gain_of: table.GainOf) -> int:
    """Searches for each backend, workload and size of the jobs, prints the table, and returns the exit status: 1 where a default failed."""
    remaining = allocation.Remaining(allocation.end_time())
    searched = {(job.settings.workload, job.num_ranks, job.backend): job for job in jobs if not is_repeat(job)}
    runs_of_job: dict[tuple[str, int, str], tuple[dict[Trial, Measured], Cell]] = {}
    try:
        for name, job in searched.items():
            runs: dict[Trial, Measured] = {}
            cell = cell_of(job, options)
            runs_of_job[name] = runs, cell
            while trial := search.next_trial(runs, cell):
                job_of_trial = made(job, trial, stamp)
                if not remaining.has_time_for([(0, job_of_trial)]):
                    print("the search ends here, since the allocation would end before its next run; --resume goes on")
                    return 1
                with remaining.timed([(0, job_of_trial)]):
                    record = measured_before(job_of_trial) or measure(job_of_trial, launcher, options)
                runs[trial] = of_record(record)
                if trial == Trial(cell.default_batch):
                    cell = cell._replace(num_samples=samples_in_epoch(record))
                    runs_of_job[name] = runs, cell
                print(line(job, trial, runs, record), flush=True)
    finally:
        bests = [table.best_of(*name, runs, cell, gain_of) for name, (runs, cell) in runs_of_job.items()]
        table.show([best for best in bests if best])
    return 0 if all(bests) else 1


def is_repeat(job: Job) -> bool:
    """Returns whether a job is another run of what another one is: a repeat, a control, or a traced run."""
    return bool(job.settings.repeat or job.settings.control or job.settings.timeline or job.settings.trace)


def cell_of(job: Job, options: Options) -> Cell:
    """Returns what is searched for a job. The samples of an epoch are known from its first run."""
    settings = workloads.resolve(job.settings, job.degree)
    workload, plan = workloads.workload_of(settings), workloads.batch_plan(settings, job.degree)
    batch_size = settings.batch_size or workload.batch_size
    return Cell(
        default_batch=batch_size,
        settings=tuple(settings_of_library(job.backend)),
        limit_bytes=options.limit_bytes or free_bytes(settings.device, job.ranks_per_node),
        state_bytes=state_memory.needed(job.backend, settings, job.num_ranks, job.ranks_per_node, settings.device).rank_bytes,
        num_samples=0,
        batch_ratio=plan.global_batch // batch_size,
        num_pairs=options.num_pairs,
        has_target=settings.target is not None,
    )


def free_bytes(device: str, ranks_per_node: int) -> float:
    """Returns the memory that is free here for each rank: of its GPU, or its share of the node's."""
    return gpus.most_free_bytes() if device == "cuda" else machine.available_bytes() / ranks_per_node


def made(job: Job, trial: Trial, stamp: str) -> Job:
    """Returns the job of a run of a search: an epoch, or with the purpose `solution` a whole training, at its batch and setting.

    A whole training scales the learning rate with the global batch.
    """
    settings = job.settings
    default = settings.batch_size or workloads.workload_of(settings).batch_size
    setting = trial.setting.replace("=", "-")
    changed: dict[str, object] = {
        "batch_size": trial.batch_size, "library_setting": trial.setting, "repeat": trial.repeat, "seed": settings.seed + trial.repeat,
        "step_breakdown": False, "results": settings.results / FOLDER,
        "run_id": f"{stamp}-{settings.workload}-{job.backend}-n{job.num_ranks}-b{trial.batch_size}-{setting}-{trial.purpose}{trial.repeat}",
    }  # fmt: skip
    if trial.purpose == "solution":
        learning_rate = workloads.resolve(settings, job.degree).learning_rate
        assert learning_rate, workloads.RESOLVED
        changed |= {"learning_rate": learning_rate * trial.batch_size / default}
    else:
        changed |= {"epochs": 1, "stop_at_target": False}
    return job._replace(settings=dataclasses.replace(settings, **changed))


def measured_before(job: Job) -> Record | None:
    """Returns the record of a run that has completed; None where there is none."""
    record = runner.recorded(job) if runner.record_path(job).exists() else None
    return record if record and record.status == "ok" else None


def measure(job: Job, launcher: Launcher, options: Options) -> Record:
    """Runs a job of a search by itself, and returns its record."""
    records.make_folder(records.folder(job.settings))
    return turns.alone(runner.run_job(job, launcher, options.time_limit_seconds, lambda _: None))


def of_record(record: Record) -> Measured:
    """Returns what a run of a search has measured."""
    if record.status != "ok":
        return Measured(None)
    of_gpus = record.gpu_memory_by_rank
    sizes = of_gpus.peak_reserved_bytes if of_gpus else record.peak_memory_bytes_by_rank or []
    known = [size for size in sizes if size is not None]
    return Measured(record.samples_per_second, max(known, default=None), record.time_to_solution_seconds)


def samples_in_epoch(record: Record) -> int:
    """Returns the samples of an epoch, with those that a run has left out."""
    return (record.samples_per_epoch or 0) + (record.samples_dropped_per_epoch or 0)


def line(job: Job, trial: Trial, runs: dict[Trial, Measured], record: Record) -> str:
    """Describes a run of a search that has ended."""
    setting = "" if trial.setting == NO_SETTING else f", {trial.setting}"
    name = f"{job.settings.workload} {job.backend} {ranks_of(job.num_ranks)}, batch size {trial.batch_size}{setting}"
    if record.status != "ok":
        return f"best: {name}: {record.status}: {record.error}"
    if trial.purpose == "solution":
        time = record.time_to_solution_seconds
        return f"best: {name}: target {'not reached' if time is None else f'reached in {time:.2f} s'}"
    repeat = f", repeat {trial.repeat + 1}" if trial.purpose == "pair" else ""
    return f"best: {name}{repeat}: {record.samples_per_second:.0f} samples/s"
