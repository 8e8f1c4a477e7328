"""Runs a matrix: backends x workloads x sizes x repeats, each run on its own, one after the other, and then the table."""

import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from common import config, datasets, records, sharding, workloads
from common.config import Settings
from common.errors import UserError
from common.ranks import Ranks
from launch import compare, launchers, processes
from launch.display import Display
from launch.plan import plan

NOT_BACKENDS = ("__init__", "torch_side", "tf_side")
TAIL_LINES = 50


@dataclass(frozen=True)
class Matrix:
    sizes: Annotated[tuple[int, ...], tyro.conf.Positional] = (1, 2)
    """Numbers of ranks."""
    backends: str | None = None
    """Backends, separated by commas. Default: all that are installed; `single` runs once, at size 1."""
    workloads: str = "cnn"
    """Workloads, separated by commas."""
    repeats: int = 1
    """Runs of each combination; repeat r has seed + r."""
    launcher: str | None = None
    """mpich, openmpi, pals, srun or torchrun. Default: found, in an allocation of Slurm or PBS first."""
    ranks_per_node: int | None = None
    """Ranks on each node at most. Default: all on one node."""
    time_limit: float = 900.0
    """Seconds after which a run is ended and recorded as timed out."""
    dry_run: bool = False
    """Print the commands and run nothing."""
    run: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def main():
    """Exit status 0: all runs ok; 1: a run failed or timed out; 2: a mistake in the arguments; 130: interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        matrix = config.parse(
            Matrix, "launch/matrix.sh", "Trains every workload with every backend at every size, and compares them in one table."
        )
        sys.exit(run(matrix))
    except UserError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def run(matrix):
    """Runs the matrix and returns the exit status. Raises UserError, before anything has run, for what cannot work."""
    for name in ("workload", "run_id", "repeat"):
        if getattr(matrix.run, name) != getattr(Settings(), name):
            raise UserError(f"{config.flag(name)} is for a single run; here use --workloads and --repeats")
    if not matrix.time_limit > 0:
        raise UserError(f"--time-limit is {matrix.time_limit:g}; it must be above 0 seconds")
    settings = dataclasses.replace(matrix.run, results=seen_from_root(matrix.run.results), machine=records.machine_name(matrix.run))
    if settings.data_dir:
        settings = dataclasses.replace(settings, data_dir=seen_from_root(settings.data_dir))
    os.chdir(records.ROOT)
    names = split(matrix.backends) if matrix.backends is not None else all_backends()
    launcher, executable = launchers.find(matrix.launcher, os.environ, records.ROOT)
    for name in names:
        if name not in all_backends():
            raise UserError(f"there is no backend {name!r}; choose from: {', '.join(all_backends())}")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    jobs = plan(names, split(matrix.workloads), matrix.sizes, matrix.repeats, matrix.ranks_per_node, settings, stamp)
    check(jobs)
    reasons = unavailable(names, launcher)
    for name, reason in reasons.items():
        print(f"skipping {name}: {reason}", file=sys.stderr)
    jobs = [job for job in jobs if job.backend not in reasons]
    if not jobs:
        raise UserError("none of these backends can run here; the lines above say why")
    if matrix.dry_run:
        for job in jobs:
            print(typed(*launchers.command(job, launcher, executable)))
        return 0
    folder = records.folder(settings)
    records.make_folder(folder)
    records.read_all(folder)
    done = []
    try:
        with Display(len(jobs)) as display:
            for number, job in enumerate(jobs, 1):
                display.begin(number, job)
                done.append(run_job(job, launcher, executable, matrix.time_limit, display))
                display.finish(done[-1])
    finally:
        if done:
            compare.show(done)
            print(f"records: {folder}/{stamp}-*.json")
    return 0 if all(record["status"] == "ok" for record in done) else 1


def split(text):
    return [part.strip() for part in text.split(",") if part.strip()]


def seen_from_root(path):
    """The path for a program that runs in the checkout: relative inside it, absolute elsewhere."""
    path = path.absolute()
    return path.relative_to(records.ROOT) if path.is_relative_to(records.ROOT) else path


def all_backends():
    """Every backend there is: a file of frameworks/ that is not what they share. The baseline first."""
    names = (path.stem for path in (records.ROOT / "frameworks").glob("*.py"))
    return sorted((name for name in names if name not in NOT_BACKENDS), key=lambda name: (name != "single", name))


def check(jobs):
    """Resolves the settings of every job and reads its data once, so that a mistake stops the matrix before its first run."""
    num_samples = {}
    for job in jobs:
        settings = workloads.resolve(job.settings, job.ranks)
        kind = (settings.workload, settings.dataset)
        if kind not in num_samples:
            num_samples[kind] = len(datasets.loader(settings)().train_labels)
        sharding.num_steps(num_samples[kind], workloads.global_batch(settings, job.ranks), settings.last_batch)


def unavailable(names, launcher):
    """{backend: why it cannot run here}, found by importing each one in a process of its own."""

    def why(name):
        if launcher in launchers.WITHOUT_MPI and launchers.needs_mpi(name):
            return f"it needs MPI, which {launcher} does not start; use an MPI launcher"
        probe = subprocess.run(
            [sys.executable, "-c", f"import frameworks.{name}"], cwd=records.ROOT, capture_output=True, text=True, check=False
        )
        return probe.stderr.strip().splitlines()[-1] if probe.returncode else None

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return {name: reason for name, reason in zip(names, pool.map(why, names), strict=True) if reason}


def typed(argv, variables):
    """A command as one would type it."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in variables.items()), shlex.join(argv)])


def run_job(job, launcher, executable, time_limit_seconds, display):
    """Runs one job and returns its record: the run's own, or, where the run could not finish it, completed here."""
    argv, variables = launchers.command(job, launcher, executable)
    launch = {"launcher": launcher, "command": typed(argv, variables), "launched_at": time.time()}
    path = records.folder(job.settings) / f"{job.settings.run_id}.json"
    variables = variables | {"TANDEM_LAUNCH": json.dumps(launch)}
    outcome, ended_by = None, "interrupted"
    try:
        outcome = processes.run(argv, variables, job.settings.run_id, records.ROOT, time_limit_seconds, display.progress)
        ended_by = f"exit status {outcome.returncode}"
    except OSError as problem:
        ended_by = f"{executable} could not be started: {problem.strerror}"
    finally:
        record = complete(path, job, launch, outcome, ended_by, time_limit_seconds)
    return record


def complete(path, job, launch, outcome, ended_by, time_limit_seconds):
    """The record of a run that has ended, written again where the run itself did not bring it to a good end."""
    record = (
        records.read(path)
        if path.exists()
        else records.new(job.backend, workloads.resolve(job.settings, job.ranks), Ranks(size=job.ranks), launch)
    )
    if outcome and outcome.returncode == 0 and record["status"] == "ok":
        return record
    record["status"] = "failed"
    if outcome and outcome.returncode is None:
        record["status"], record["error"] = "timeout", f"ended after the time limit of {time_limit_seconds:g} s"
    elif not record["error"]:
        record["error"] = ended_by
    record["output_tail"] = outcome.last_lines[-TAIL_LINES:] if outcome else None
    records.write(path, record)
    return record


if __name__ == "__main__":
    main()
