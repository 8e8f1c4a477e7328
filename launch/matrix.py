"""Runs a matrix: backends x workloads x sizes x repeats, those of a workload and repeat side by side, and then the table."""

import dataclasses
import functools
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from common import backends, command_line, config
from common.command_line import PERCENT, RANKS, REPEATS
from common.config import SEEDS, Role, Settings
from common.errors import UserError
from common.model import workload_table
from common.record import records
from launch.launchers import commands, detect, machine_files
from launch.run import available, check, job_scripts, lock, resume, room, runner, seeds, until
from launch.run.options import NodeOptions, seen_from_root
from launch.run.plan import plan, stamped
from launch.run.session import run_all

PROGRAM = "launch/matrix.sh"
# Settings that a matrix refuses, beside those that select variants, and how the message goes on.
FOR_A_SINGLE_RUN = {
    **dict.fromkeys(("workload", "run_id", "repeat"), "; here use --workloads and --repeats"),
    "checkpoint_dir": ", python -m frameworks.BACKEND; the runs of a matrix start from epoch 1",
    "share_gpu": ", python -m frameworks.BACKEND; it is never compared",
}

# Options with which a matrix prints something and runs nothing.
INSTEAD_OF_RUNNING = ("dry_run", "check", "print_jobs")


@dataclass(frozen=True)
class Axes:
    """The axes of a matrix."""

    sizes: Annotated[tuple[int, ...], tyro.conf.Positional, RANKS] = (1, 2)
    """Numbers of ranks."""
    backends: str | None = None
    """Backends, separated by commas; a variant is written deepspeed_zero@3 or ddp@mpi. `all`: every backend, without variants.
    Default: single, ddp, deepspeed_zero and Horovod's; `single` runs once, at size 1, and not in a matrix of one other size."""
    workloads: str = ",".join(workload_table.BY_DEFAULT)
    """Workloads, separated by commas."""
    repeats: Annotated[int, REPEATS] = 1
    """Runs of each combination; repeat r has seed + r."""
    quiet_limit: Annotated[float | None, PERCENT] = None
    """Percent: run again, up to 3 times, what met a machine whose speed was further than this from the median of the matrix. Default: mark
    it in the report only."""


@dataclass(frozen=True)
class RunSettings(Settings):
    """The settings that the runs share, and the first of their seeds."""

    seed: Annotated[int | None, SEEDS, Role.MAY_DIFFER] = None
    """Seed of the initial parameters and the sample order of the first repeat. Default: 1, or the one after those with which earlier
    matrices in these results have made any of the runs."""


# The fields of the last base come first, also in the help.
@dataclass(frozen=True)
class Matrix(NodeOptions, Axes):
    """The axes of a matrix, how it runs, and every setting of its runs."""

    side_by_side: bool = True
    """Run the backends and sizes of a workload and repeat side by side: all are started, then they take short turns, one training while
    the others are stopped, so that all meet the same machine. A size that is oversubscribed has turns of its own. Runs on several nodes,
    and runs that do not fit into memory beside the others, follow one after the other."""
    dry_run: bool = False
    """Print the commands and run nothing."""
    check: bool = False
    """Print what the matrix would use and what would go wrong, with its remedy, and run nothing. Exit status 1 where there is a problem.
    Inside an allocation it asks one of its nodes."""
    print_jobs: Literal[tuple(job_scripts.BATCH_SYSTEMS)] | None = None
    """Print a bash script that submits this matrix to the batch system, each size as a job of its own after the one before, and submit
    nothing. With --device cuda a job asks for a GPU per rank. The time limit is from earlier records of the same runs, else an hour."""
    run: Annotated[RunSettings, tyro.conf.arg(name="")] = field(default_factory=RunSettings)


def run(matrix):
    """Runs the matrix and returns the exit status. Raises UserError, before anything has run, for what cannot work."""
    if len(given := [command_line.flag(name) for name in INSTEAD_OF_RUNNING if getattr(matrix, name)]) > 1:
        raise UserError(f"{' and '.join(given)} each print something else; give one of them")
    machine = machine_files.read(matrix.machine_file)
    settings = machine_files.applied(machine, settings_of(matrix))
    hosts = str(seen_from_root(matrix.hosts)) if matrix.hosts else None
    typed_in = Path.cwd()
    os.chdir(records.ROOT)
    names = backends.chosen(matrix.backends)
    ranks_per_node = machine.ranks_per_node if matrix.ranks_per_node is None else matrix.ranks_per_node
    workloads = command_line.names_in(matrix.workloads)
    jobs = plan(names, workloads, matrix.sizes, matrix.repeats, ranks_per_node, settings)
    left_out = [name for name in names if name not in {job.backend for job in jobs}]
    jobs = available.trainable(jobs) if matrix.backends == backends.ALL else jobs
    until.check(settings.until, matrix.repeats)
    choose = functools.partial(detect.choose, matrix.launcher, matrix.launcher_args, machine, hosts, settings.host_suffix)
    if matrix.check:
        return check.run(matrix, machine, settings, jobs, choose)
    folder = records.folder(settings)
    present = records.read_all(folder) if folder.exists() else []
    if matrix.print_jobs:
        print(job_scripts.text(matrix.print_jobs, matrix, jobs, machine.prologue, present, typed_in))
        return 0
    launcher = choose(pretend=matrix.dry_run)
    available.check(jobs, launcher)
    if not matrix.dry_run:
        records.expect_writable(folder)
        lock.expect_free(folder, jobs, matrix.share_machine)
    if left_out:
        print(f"skipping {', '.join(left_out)}: size 1 is not among the sizes", file=sys.stderr)
    jobs = available.runnable(jobs, launcher, matrix.dry_run)
    if not available.runs_elsewhere(jobs, launcher):
        room.expect_room(jobs)
    on_device = dataclasses.replace(settings, device=jobs[0].settings.device)
    candidates = folder, resume.identity(names, workloads, matrix.sizes, ranks_per_node, on_device), jobs, matrix.run.resume
    if matrix.dry_run:
        for job in resume.divided(named_and_seeded(matrix, jobs, present, next(resume.stamps(*candidates))))[1]:
            print(commands.shell_command(runner.start_of(job, launcher)))
        return 0
    records.make_folder(folder)
    with lock.held(folder, jobs, matrix.share_machine), resume.held(*candidates) as stamp:
        jobs = named_and_seeded(matrix, jobs, present, stamp)
        resume.wait_until_ended(jobs)
        run_records, jobs = resume.divided(jobs)
        if not jobs:
            print(f"all runs of {stamp} have completed; without --resume a new matrix begins")
        return run_all(matrix, run_records, jobs, launcher, folder / f"{stamp}.html")


def named_and_seeded(matrix, jobs, present, stamp):
    """The jobs as they run under a stamp, with their seeds; `present`: the records in the folder. Prints what is said of them before."""
    earlier = seeds.earlier(present, stamp)
    for line in until.hindrances(jobs, matrix.run.until, matrix.repeats, earlier):
        print(line, file=sys.stderr)
    return stamped(seeds.continued(jobs, earlier) if matrix.run.seed is None else jobs, stamp)


def settings_of(matrix):
    """The settings that all runs share, with paths relative to the top folder of the checkout, where runs start."""
    for name in (*FOR_A_SINGLE_RUN, *backends.variant_settings()):
        if (value := getattr(matrix.run, name)) != getattr(Settings, name):
            advice = FOR_A_SINGLE_RUN.get(name) or f"; here write {' or '.join(backends.with_variant(name, value))} in --backends"
            raise UserError(f"{command_line.flag(name)} is for a single run{advice}")
    shared = vars(matrix.run) | ({"seed": Settings.seed} if matrix.run.seed is None else {})
    # It is the matrix that is resumed, not its runs.
    settings = Settings(**shared | {"resume": False})
    config.check(settings)
    paths = {name: seen_from_root(path) for name in ("results", "data_dir", "tokenizer") if (path := getattr(matrix.run, name))}
    if matrix.run.trace and matrix.run.trace not in config.TRACES:
        paths["trace"] = str(Path(matrix.run.trace).absolute())
    # Compute nodes of one machine all have other host names, its file has one.
    has_file = matrix.run.machine is None and matrix.machine_file != Matrix.machine_file
    machine = Path(matrix.machine_file).stem if has_file else records.machine_name(matrix.run)
    return dataclasses.replace(settings, **paths, machine=machine)


if __name__ == "__main__":
    command_line.main(run, Matrix, PROGRAM, "Trains every workload with every backend at every size, and compares them in one table.")
