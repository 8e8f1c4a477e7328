"""The searches of a matrix with --best: the best batch and setting of the library for each backend, workload and size.

A search doubles the batch, then tries each setting of the library at the fastest batch, and then repeats the best in turns with the
default. Where there is a target, a whole training at the best ends it. One run follows the other, with a line for each. Their records are
in a folder of their own, and a run that has a record there is not made again.
"""

import dataclasses
import time
from collections.abc import Callable, Container, Iterable, Mapping
from statistics import geometric_mean
from typing import Any, Literal, NamedTuple

from common import workloads
from common.backends import settings_of_library
from common.config import NO_SETTING
from common.record import files
from common.record.definition import Record
from common.terminal import filled, print_tables
from common.words import ranks_of
from launch.launchers import batch_systems
from launch.launchers.commands import Launcher
from launch.run import runner, turns
from launch.run.plan import Job
from launch.run.session import Estimate, num_cores

# Throughput that the last doubling of the batch must have gained for another one.
LEAST_GAIN = 0.02
# Steps of an epoch whose throughput counts.
LEAST_STEPS = 4
# Below the folder of a matrix's records.
FOLDER = "best"
QUESTION = "And if each may choose?"
SPEED = "samples/s"
NOTE = (
    "Batch and setting were searched in runs of one epoch, and the backends followed one another. Samples/s and gain are of runs of the "
    "default and the best in turns. These runs are in no other table."
)


class Trial(NamedTuple):
    """A run of a search: its batch size, its setting of the library, and what it is for. Pairs are repeated."""

    batch_size: int
    setting: str = NO_SETTING
    purpose: Literal["search", "pair", "solution"] = "search"
    repeat: int = 0


class Measured(NamedTuple):
    """What a run of a search has measured, and the samples of its epochs; without a throughput it failed, as for want of memory."""

    samples_per_second: float | None
    seconds_to_target: float | None = None
    num_samples: int = 0


class SearchSpace(NamedTuple):
    """What is searched: from which batch, among which settings. `batch_ratio` is the global batch over the batch size."""

    default_batch: int
    settings: tuple[str, ...]
    batch_ratio: int
    num_pairs: int
    has_target: bool


# The runs of a search by what they are.
Runs = Mapping[Trial, Measured]


# The throughput of the best over that of the default, from those of each pair, and its 95 % interval as text; None from too few pairs.
GainOf = Callable[[list[float], list[float]], tuple[float, str | None]]


def run(jobs: Iterable[Job], stamp: str, launcher: Launcher, num_pairs: int, time_limit_seconds: float, gain_of: GainOf) -> int:
    """Searches for each backend, workload and size of the jobs, prints the table, and returns the exit status: 1 where a default failed."""
    estimate = Estimate(num_cores(), batch_systems.end_time())
    searched = {(job.settings.workload, job.num_ranks, job.backend): job for job in jobs if not is_repeat(job)}
    runs_of_job: dict[tuple[str, int, str], tuple[dict[Trial, Measured], SearchSpace]] = {}
    try:
        for name, job in searched.items():
            runs: dict[Trial, Measured] = {}
            space = space_of(job, num_pairs)
            runs_of_job[name] = runs, space
            while trial := next_trial(runs, space):
                job_of_trial = job_of(job, trial, stamp)
                record = measured_before(job_of_trial)
                if not record:
                    if not estimate.has_time_for([job_of_trial]):
                        print("the search ends here, since the allocation would end before its next run; --resume goes on")
                        return 1
                    began = time.monotonic()
                    record = measure(job_of_trial, launcher, time_limit_seconds)
                    estimate.add([job_of_trial], time.monotonic() - began)
                runs[trial] = measured_in(record)
                print(describe(job, trial, runs, record), flush=True)
    finally:
        rows = [row_of(*name, runs, space, gain_of) for name, (runs, space) in runs_of_job.items()]
        ordered = sorted(filter(None, rows), key=lambda row: (row["workload"], row["ranks"], -(row[SPEED] or 0.0)))
        print_tables(filled(QUESTION, ordered), [NOTE] if ordered else [])
    return 0 if all(rows) else 1


def is_repeat(job: Job) -> bool:
    """Returns whether a job is another run of what another one is: a repeat, a control, or a traced run."""
    return bool(job.settings.repeat or job.settings.control or job.settings.timeline or job.settings.trace)


def space_of(job: Job, num_pairs: int) -> SearchSpace:
    """Returns what is searched for a job."""
    settings = workloads.resolve(job.settings, job.degree)
    workload, plan = workloads.workload_of(settings), workloads.batch_plan(settings, job.degree)
    batch_size = settings.batch_size or workload.batch_size
    return SearchSpace(
        default_batch=batch_size,
        settings=tuple(settings_of_library(job.backend)),
        batch_ratio=plan.global_batch // batch_size,
        num_pairs=num_pairs,
        has_target=settings.target is not None,
    )


def job_of(job: Job, trial: Trial, stamp: str) -> Job:
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


def measure(job: Job, launcher: Launcher, time_limit_seconds: float) -> Record:
    """Runs a job of a search by itself, and returns its record."""
    files.make_folder(files.folder(job.settings))
    return turns.alone(runner.run_job(job, launcher, time_limit_seconds, lambda _: None))


def measured_in(record: Record) -> Measured:
    """Returns what a run of a search has measured."""
    if record.status != "ok":
        return Measured(None)
    num_samples = (record.samples_per_epoch or 0) + (record.samples_dropped_per_epoch or 0)
    return Measured(record.samples_per_second, record.time_to_solution_seconds, num_samples)


def describe(job: Job, trial: Trial, runs: dict[Trial, Measured], record: Record) -> str:
    """Describes a run of a search that has ended."""
    setting = "" if trial.setting == NO_SETTING else f", {trial.setting}"
    name = f"{job.settings.workload} {job.backend} {ranks_of(job.num_ranks)}, batch size {trial.batch_size}{setting}"
    if record.status != "ok":
        return f"best: {name}: {record.status}: {record.error}"
    if trial.purpose == "solution":
        seconds = record.time_to_solution_seconds
        return f"best: {name}: target {'not reached' if seconds is None else f'reached in {seconds:.2f} s'}"
    repeat = f", repeat {trial.repeat + 1}" if trial.purpose == "pair" else ""
    return f"best: {name}{repeat}: {record.samples_per_second:.0f} samples/s"


def next_trial(runs: Runs, space: SearchSpace) -> Trial | None:
    """Returns the run to make next; None where the search has ended."""
    default = Trial(space.default_batch)
    if default not in runs:
        return default
    if runs[default].samples_per_second is None:
        return None
    if end_of_batches(runs, space) is None:
        return Trial(2 * batches_of(runs)[-1])
    batch_size = fastest(runs, {NO_SETTING}).batch_size
    after_batches = [Trial(batch_size, setting) for setting in space.settings]
    best = fastest(runs)
    if all(trial in runs for trial in after_batches):
        after_batches += paired_trials(default, best, space.num_pairs)
        after_batches += [best._replace(purpose="solution")] if space.has_target else []
    return next((trial for trial in after_batches if trial not in runs), None)


def paired_trials(default: Trial, best: Trial, num_pairs: int) -> list[Trial]:
    """Returns the repeats of the default and the best, each pair in another order than the one before; none where they are the same."""
    if best == default:
        return []
    repeats: list[Trial] = []
    for repeat in range(num_pairs):
        of_repeat = [trial._replace(purpose="pair", repeat=repeat) for trial in (default, best)]
        repeats += of_repeat if repeat % 2 == 0 else reversed(of_repeat)
    return repeats


def fastest(runs: Runs, settings: Container[str] | None = None) -> Trial:
    """Returns the fastest run of those that searched, with one of these settings of the library, or with any."""
    searched = [trial for trial in runs if trial.purpose == "search" and (settings is None or trial.setting in settings)]
    return max(searched, key=lambda trial: runs[trial].samples_per_second or 0.0)


def batches_of(runs: Runs) -> list[int]:
    """Returns the batch sizes that were tried with the library's defaults, the smallest first."""
    return sorted(trial.batch_size for trial in runs if trial.purpose == "search" and trial.setting == NO_SETTING)


def end_of_batches(runs: Runs, space: SearchSpace) -> str | None:
    """Returns why no larger batch is tried; None where one is."""
    batches = batches_of(runs)
    measured = [runs[Trial(size)] for size in batches]
    speeds = [run.samples_per_second for run in measured]
    if speeds[-1] is None:
        return f"a batch of {batches[-1]} failed"
    if len(speeds) > 1 and (before := speeds[-2]) and speeds[-1] <= (1 + LEAST_GAIN) * before:
        return f"a batch of {batches[-1]} gained no {100 * LEAST_GAIN:g} %"
    num_samples = measured[-1].num_samples
    if 2 * batches[-1] * space.batch_ratio * LEAST_STEPS > num_samples:
        return f"an epoch has {num_samples:,} samples"
    return None


def row_of(workload: str, num_ranks: int, backend: str, runs: Runs, space: SearchSpace, gain_of: GainOf) -> dict[str, Any] | None:
    """Returns the row of what a search has found so far; None before its first run has completed.

    Throughputs are of the runs in turns, or else of those that searched.
    """
    default = Trial(space.default_batch)
    if runs.get(default, Measured(None)).samples_per_second is None:
        return None
    chosen = fastest(runs)
    gain, interval, default_speed, speed = None, None, runs[default].samples_per_second, runs[chosen].samples_per_second
    if speeds := paired_speeds(default, chosen, runs, space.num_pairs):
        above, below = [list(side) for side in zip(*speeds, strict=True)]
        gain, interval = gain_of(above, below)
        default_speed, speed = geometric_mean(below), geometric_mean(above)
    solution = runs.get(chosen._replace(purpose="solution"))
    return {
        "workload": workload,
        "ranks": num_ranks,
        "backend": backend,
        SPEED: speed,
        "--batch-size": chosen.batch_size,
        "setting": None if chosen.setting == NO_SETTING else chosen.setting,
        "gain": gain,
        "95 % interval": interval,
        "default samples/s": default_speed,
        "default batch": default.batch_size,
        "time to solution (s)": solution and ("not reached" if solution.seconds_to_target is None else solution.seconds_to_target),
        "no larger batch, since": end_of_batches(runs, space),
    }


def paired_speeds(default: Trial, chosen: Trial, runs: Runs, num_pairs: int) -> list[tuple[float, float]]:
    """Returns the throughput of the best and of the default in each pair that is complete."""
    pairs = []
    for repeat in range(num_pairs if chosen != default else 0):
        above, below = (runs.get(trial._replace(purpose="pair", repeat=repeat), Measured(None)) for trial in (chosen, default))
        if above.samples_per_second and below.samples_per_second:
            pairs.append((above.samples_per_second, below.samples_per_second))
    return pairs
