"""Runs a matrix: backends x workloads x sizes x repeats, those of a workload and repeat side by side, and then the table."""

import dataclasses
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from common import backends, command_line, config
from common.command_line import FROM_1, Bounds
from common.config import Settings
from common.errors import UserError
from common.model import workload_table
from common.record import records
from launch.launchers import commands, detect, machine_files
from launch.run import available, lock, resume, room, runner, until
from launch.run.options import NodeOptions, seen_from_root
from launch.run.plan import plan
from launch.run.session import run_all

PROGRAM = "launch/matrix.sh"
# Settings that a matrix refuses, beside those that select variants, and how the message goes on.
FOR_A_SINGLE_RUN = {
    **dict.fromkeys(("workload", "run_id", "repeat"), "; here use --workloads and --repeats"),
    "checkpoint_dir": ", python -m frameworks.BACKEND; the runs of a matrix start from epoch 1",
    "share_gpu": ", python -m frameworks.BACKEND; it is never compared",
}
PERCENT = Bounds(above=0, below=100, hint=", such as 5")


@dataclass(frozen=True)
class Axes:
    """The axes of a matrix."""

    sizes: Annotated[tuple[int, ...], tyro.conf.Positional] = (1, 2)
    """Numbers of ranks."""
    backends: str | None = None
    """Backends, separated by commas; a variant is written deepspeed_zero@3 or ddp@mpi. `all`: every backend, without variants.
    Default: single, ddp, deepspeed_zero and Horovod's; `single` runs once, at size 1."""
    workloads: str = ",".join(workload_table.BY_DEFAULT)
    """Workloads, separated by commas."""
    repeats: Annotated[int, FROM_1] = 1
    """Runs of each combination; repeat r has seed + r."""
    until: Annotated[float | None, PERCENT] = None
    """Percent: repeat until every ratio to the fastest at a size is known to ± this, or --repeats is reached. Default: --repeats times."""
    quiet_limit: Annotated[float | None, PERCENT] = None
    """Percent: run again, up to 3 times, what met a machine whose speed was further than this from the median of the matrix. Default: mark
    it in the report only."""


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
    run: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def run(matrix):
    """Runs the matrix and returns the exit status. Raises UserError, before anything has run, for what cannot work."""
    machine = machine_files.read(matrix.machine_file)
    settings = machine_files.applied(machine, settings_of(matrix))
    hosts = str(seen_from_root(matrix.hosts)) if matrix.hosts else None
    os.chdir(records.ROOT)
    names = backends.chosen(matrix.backends)
    python, launcher_name = machine_files.python_of(machine), matrix.launcher or machine.launcher
    launcher = detect.choose(launcher_name, hosts, machine.variables, settings.host_suffix, matrix.dry_run, python)
    ranks_per_node = machine.ranks_per_node if matrix.ranks_per_node is None else matrix.ranks_per_node
    stamp = resume.last_stamp(records.folder(settings)) if matrix.run.resume else time.strftime("%Y%m%d-%H%M%S")
    jobs = plan(names, command_line.names_in(matrix.workloads), matrix.sizes, matrix.repeats, ranks_per_node, settings, stamp)
    jobs = available.trainable(jobs) if matrix.backends == backends.ALL else jobs
    until.check(matrix.until, matrix.repeats)
    available.check(jobs, launcher)
    folder = records.folder(settings)
    if not matrix.dry_run:
        records.expect_writable(folder)
        if folder.exists():
            records.read_all(folder)
        lock.expect_free(folder, jobs, matrix.share_machine)
    jobs = available.runnable(jobs, launcher, matrix.dry_run)
    if not available.runs_elsewhere(jobs, launcher):
        room.expect_room(jobs)
    if matrix.dry_run:
        for job in not_done(matrix, jobs)[1]:
            print(commands.shell_command(runner.start_of(job, launcher)))
        return 0
    records.make_folder(folder)
    with lock.held(folder, jobs, matrix.share_machine):
        if matrix.run.resume:
            resume.wait_until_ended(jobs)
        done, jobs = not_done(matrix, jobs)
        return run_all(matrix, done, jobs, launcher, folder / f"{stamp}.html")


def not_done(matrix, jobs):
    """(records of the jobs that are completed, the jobs to run)."""
    return resume.divided(jobs) if matrix.run.resume else ([], jobs)


def settings_of(matrix):
    """The settings that all runs share, with paths relative to the top folder of the checkout, where runs start."""
    for name in (*FOR_A_SINGLE_RUN, *backends.variant_settings()):
        if (value := getattr(matrix.run, name)) != getattr(Settings, name):
            advice = FOR_A_SINGLE_RUN.get(name) or f"; here write {' or '.join(backends.with_variant(name, value))} in --backends"
            raise UserError(f"{command_line.flag(name)} is for a single run{advice}")
    # It is the matrix that is resumed, not its runs.
    settings = dataclasses.replace(matrix.run, resume=False)
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
