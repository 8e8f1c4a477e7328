"""Starts the ranks of the measurement, shows what rank 0 prints, and leaves no process behind."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from common.backends import ROOT
from common.errors import UserError
from common.process import messages
from common.process.ranks import SLURM, Ranks, from_environment
from common.record import records
from launch.collectives import options as collective_options
from launch.collectives.options import Collectives
from launch.launchers import commands, detect, machine_files
from launch.launchers.commands import Launcher, Start
from launch.launchers.machine_files import Machine
from launch.run import lock, processes, turns


def is_rank() -> bool:
    """Returns whether a launcher has started this process as one of several ranks."""
    try:
        return from_environment().size > 1
    except UserError:
        return False


def run(options: Collectives) -> int:
    """Starts the ranks and returns the exit status. Raises UserError, before anything runs, for what cannot work."""
    source = from_environment().source
    # The shell of an interactive job may itself be a step of one task.
    if source not in (Ranks().source, SLURM.name):
        raise UserError(f"{source} has started one rank, which sends nothing; start 2 or more, or leave the launcher out")
    collective_options.check(options)
    arguments = collective_options.of_ranks(options)
    machine = machine_files.read(options.machine_file)
    hosts = str(Path(options.hosts).absolute()) if options.hosts else None
    os.chdir(ROOT)
    launcher = detect.choose(options.launcher, options.launcher_args, machine, hosts, machine.host_suffix)
    has_mpi = commands.LAUNCHERS[launcher.name].provides_mpi
    # In a site's Python the ranks find out.
    if launcher.python == commands.PYTHON:
        names = collective_options.libraries(options)
        collective_options.expect_runnable({name: collective_options.problem(name, has_mpi) for name in names})
    start = start_of(options, machine, launcher, arguments)
    argv = start.argv()
    # That of a matrix with the default folder of results, where ranks are on several nodes.
    folder = ROOT / "results" / records.machine_name(options.machine)
    lock.path_of(folder, [start]).parent.mkdir(parents=True, exist_ok=True)
    with lock.held(folder, [start], options.share_machine):
        mark = f"collectives-{os.uname().nodename}-{os.getpid()}"
        outcome = turns.alone(processes.run(argv, start.variables, mark, ROOT, options.time_limit, lambda message: None, show))
    if outcome.timed_out:
        print(f"error: ended after the time limit of {options.time_limit:g} s (--time-limit)", file=sys.stderr)
    # A launcher may have an exit status of its own for a rank that failed.
    return outcome.returncode if outcome.returncode in (0, 2) else 1


def start_of(options: Collectives, machine: Machine, launcher: Launcher, arguments: Sequence[str]) -> Start:
    ranks_per_node = options.ranks_per_node or machine.ranks_per_node or options.ranks
    program = (*launcher.python, "-m", "launch.collectives", *arguments)
    variables = {"OMP_NUM_THREADS": str(options.cores_per_rank), messages.VARIABLE: "1"} | launcher.variables
    return Start(launcher, options.ranks, min(ranks_per_node, options.ranks), options.cores_per_rank, program, variables)


def show(line: str) -> None:
    print(line, file=sys.stderr if line.startswith("error: ") else sys.stdout, flush=True)
