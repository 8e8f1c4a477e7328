"""Runs a matrix: backends x workloads x sizes x repeats, the backends of a workload, size and repeat side by side, and then the table."""

import dataclasses
import functools
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from common import backends, command_line, config, parallelism, progress, records, workloads
from common.config import Settings
from common.data import datasets
from common.errors import UserError
from launch import available, compare, lock, quiet, resume, room, runner, turns, until
from launch.display import Display
from launch.launchers import commands, detect, machine_files
from launch.plan import groups, plan
from launch.trace import traced

PROGRAM = "launch/matrix.sh"


@dataclass(frozen=True)
class Matrix:
    """The axes of a matrix, how it runs, and every setting of its runs."""

    sizes: Annotated[tuple[int, ...], tyro.conf.Positional] = (1, 2)
    """Numbers of ranks."""
    backends: str | None = None
    """Backends, separated by commas; a variant is written deepspeed_zero@3 or ddp@mpi. `all`: every backend, without variants.
    Default: single, ddp, deepspeed_zero and Horovod's; `single` runs once, at size 1."""
    workloads: str = "cnn,transformer"
    """Workloads, separated by commas."""
    repeats: int = 1
    """Runs of each combination; repeat r has seed + r."""
    until: float | None = None
    """Percent: repeat until every ratio to the fastest at a size is known to ± this, or --repeats is reached. Default: --repeats times."""
    quiet_limit: float | None = None
    """Percent: run again, up to 3 times, what met a machine whose speed was further than this from the median of the matrix. Default: mark
    it in the report only."""
    launcher: str | None = None
    """mpich, openmpi, intel, pals, aprun, srun or torchrun. Default: the machine file's, else detected, in an allocation first."""
    ranks_per_node: int | None = None
    """Ranks on each node at most. Default: the machine file's, else all on one node."""
    hosts: Path | None = None
    """File with the name of a node on each line, for ranks on several nodes outside an allocation. Default: the launcher's own."""
    machine_file: str = "local"
    """Settings of this machine's nodes and network: local, polaris, jsc (launch/launchers/machines), or the path of a .toml file."""
    time_limit: float = 900.0
    """Seconds after which a run is ended and recorded as timed out."""
    side_by_side: bool = True
    """Run the backends of a workload, size and repeat side by side: all are started, then they take short turns, one training
    while the others are stopped, so that all meet the same machine. Runs on several nodes, and runs that do not fit into memory beside
    the others, follow one after the other."""
    share_machine: bool = False
    """Run beside another matrix on this machine: each of the two then measures the other's load. Default: the second one stops."""
    dry_run: bool = False
    """Print the commands and run nothing."""
    run: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def run(matrix):
    """Runs the matrix and returns the exit status. Raises UserError, before anything has run, for what cannot work."""
    machine = machine_files.read(matrix.machine_file)
    settings = machine_files.applied(machine, settings_of(matrix))
    hosts = str(seen_from_root(matrix.hosts)) if matrix.hosts else None
    os.chdir(records.ROOT)
    names = backends.chosen(matrix.backends)
    wanted = matrix.launcher or machine.launcher
    launcher = detect.choose(wanted, hosts, machine.variables, settings.host_suffix, os.environ, records.ROOT, matrix.dry_run)
    ranks_per_node = machine.ranks_per_node if matrix.ranks_per_node is None else matrix.ranks_per_node
    stamp = resume.last_stamp(records.folder(settings)) if matrix.run.resume else time.strftime("%Y%m%d-%H%M%S")
    names_of_workloads = [name.strip() for name in matrix.workloads.split(",") if name.strip()]
    jobs = plan(names, names_of_workloads, matrix.sizes, matrix.repeats, ranks_per_node, settings, stamp)
    jobs = trainable(jobs) if matrix.backends == backends.ALL else jobs
    until.check(matrix.until, matrix.repeats)
    quiet.check(matrix.quiet_limit)
    check(jobs, launcher)
    folder = records.folder(settings)
    if not matrix.dry_run:
        records.expect_writable(folder)
        if folder.exists():
            records.read_all(folder)
        lock.expect_free(folder, jobs, matrix.share_machine)
    jobs = runnable(jobs, launcher, matrix.dry_run)
    if not available.runs_elsewhere(jobs, launcher, os.environ):
        room.expect_room(jobs)
    if matrix.dry_run:
        for job in not_done(matrix, jobs)[1]:
            print(commands.shell_command(*commands.command(job, traced.launcher_for(job.settings, launcher))))
        return 0
    records.make_folder(folder)
    with lock.held(folder, jobs, matrix.share_machine):
        if matrix.run.resume:
            resume.wait_until_ended(jobs)
        done, jobs = not_done(matrix, jobs)
        return run_all(matrix, done, jobs, launcher, folder / f"{stamp}.html")


def trainable(jobs):
    """The jobs of every backend without those that their backends cannot train, such as a workload. Prints why they are left out."""
    reasons = {job: parallelism.problem(job.backend, job.settings, job.num_ranks) for job in jobs}
    for reason in dict.fromkeys(filter(None, reasons.values())):
        print(f"skipping: {reason}", file=sys.stderr)
    return [job for job in jobs if not reasons[job]]


def runnable(jobs, launcher, dry_run):
    """The jobs that can run, on the device of the matrix. Prints why others cannot. Raises UserError if none can."""
    jobs, reasons = available.settled(jobs, launcher, dry_run)
    for name, reason in reasons.items():
        print(f"skipping {name}: {reason}", file=sys.stderr)
    if not jobs:
        raise UserError("none of these backends can run here; the lines above say why")
    return jobs


def not_done(matrix, jobs):
    """(records of the jobs that are completed, the jobs to run)."""
    return resume.divided(jobs) if matrix.run.resume else ([], jobs)


def run_all(matrix, done, jobs, launcher, page):
    """Runs the jobs, those of a group side by side, shows them with those that are done, and returns the exit status."""
    try:
        with Display(len(jobs)) as display:
            ran = []
            for numbered in needed(matrix, jobs, done, display):
                if done:
                    compare.write_page(page, done, compare.RELOAD_SECONDS)
                run_group(matrix, numbered, launcher, display, done)
                ran.append(numbered)
            if matrix.quiet_limit:
                run_again(matrix, ran, launcher, display, done)
    finally:
        if done:
            compare.write_page(page, done)
            compare.show(done)
            print(f"records: {page.with_suffix('')}-*.json\npage: {page}")
    return 0 if all(record["status"] == "ok" for record in done) else 1


def needed(matrix, jobs, done, display):
    """Groups of (number, job); with --until without those of a workload and size whose intervals are narrow before their repeat."""
    measured, repeat, num_before = {}, 0, 0
    for group in groups(jobs, matrix.side_by_side):
        first = group[0]
        if matrix.until and first.settings.repeat != repeat:
            repeat, measured = first.settings.repeat, until.widths(done)
            for line in until.describe(measured, matrix.until, matrix.repeats):
                display.print_line(line)
        width = measured.get((first.settings.workload, first.num_ranks))
        if width is None or width.percent > matrix.until:
            yield list(enumerate(group, num_before + 1))
        num_before += len(group)


def run_again(matrix, ran, launcher, display, done):
    """Runs the groups again that met a machine which was not quiet."""
    for attempt in range(1, quiet.MAX_AGAIN + 1):
        again = quiet.disturbed(ran, done, matrix.quiet_limit)
        for numbered in again:
            runs = ", ".join(job.settings.run_id for _, job in numbered)
            display.print_line(f"again, since the machine was not quiet ({attempt} of at most {quiet.MAX_AGAIN}): {runs}")
            quiet.set_aside(numbered, done)
            run_group(matrix, numbered, launcher, display, done)


def run_group(matrix, numbered, launcher, display, done):
    """Runs jobs side by side and adds their records to those that are done, also where it is interrupted."""
    ended = set()

    def start(number, job):
        display.begin(number, job)
        own_launcher = traced.launcher_for(job.settings, launcher)
        on_progress = functools.partial(display.progress, number, job)
        return runner.run_job(job, own_launcher, matrix.time_limit, on_progress, side_by_side=len(numbered) > 1)

    def on_end(index, record):
        ended.add(index)
        done.append(record)
        display.finish(*numbered[index], record)

    try:
        turns.side_by_side([functools.partial(start, *one) for one in numbered], room.has_room, on_end)
    except KeyboardInterrupt:
        paths = [runner.record_path(job) for index, (_, job) in enumerate(numbered) if index not in ended]
        done += [records.read(path) for path in paths if path.exists()]
        raise


def settings_of(matrix):
    """The settings that all runs share, with paths relative to the top folder of the checkout, where runs start."""
    for name in ("workload", "run_id", "repeat"):
        if getattr(matrix.run, name) != getattr(Settings(), name):
            raise UserError(f"{command_line.flag(name)} is for a single run; here use --workloads and --repeats")
    if matrix.run.checkpoint_dir:
        raise UserError("--checkpoint-dir is for a single run, python -m frameworks.BACKEND; the runs of a matrix start from epoch 1")
    if matrix.run.share_gpu:
        raise UserError("--share-gpu is for a single run, python -m frameworks.BACKEND; it is never compared")
    if not matrix.time_limit > 0:
        raise UserError(f"--time-limit is {matrix.time_limit:g}; it must be above 0 seconds")
    for setting in backends.variant_settings():
        if (value := getattr(matrix.run, setting)) != getattr(Settings(), setting):
            names = " or ".join(backends.with_variant(setting, value))
            raise UserError(f"{command_line.flag(setting)} is for a single run; here write {names} in --backends")
    # It is the matrix that is resumed, not its runs.
    settings = dataclasses.replace(matrix.run, resume=False)
    config.check(settings)
    seen = {name: seen_from_root(path) for name in ("results", "data_dir", "tokenizer") if (path := getattr(matrix.run, name))}
    if matrix.run.trace and matrix.run.trace not in config.TRACES:
        seen["trace"] = str(Path(matrix.run.trace).absolute())
    return dataclasses.replace(settings, **seen, machine=machine_name(matrix))


def machine_name(matrix):
    """The name of the machine in the results: compute nodes of one machine all have other host names, its file has one."""
    if matrix.run.machine is None and matrix.machine_file != Matrix.machine_file:
        return Path(matrix.machine_file).stem
    return records.machine_name(matrix.run)


def seen_from_root(path):
    """The path relative to the checkout inside it, absolute elsewhere."""
    path = path.absolute()
    return path.relative_to(records.ROOT) if path.is_relative_to(records.ROOT) else path


def check(jobs, launcher):
    """Makes every job's command and settings and reads its data once, so that a mistake stops the matrix before its first run."""
    num_samples = {}
    for job in jobs:
        backends.name_of(backends.file_of(job.backend), job.settings)
        commands.command(job, traced.launcher_for(job.settings, launcher))
        settings = workloads.resolve(job.settings, job.degree)
        if settings.workload not in num_samples:
            on_progress = progress.reading(functools.partial(print, file=sys.stderr))
            num_samples[settings.workload] = len(datasets.loader(settings)(on_progress).train)
        workloads.num_steps(settings, num_samples[settings.workload], job.degree)


if __name__ == "__main__":
    command_line.main(run, Matrix, PROGRAM, "Trains every workload with every backend at every size, and compares them in one table.")
