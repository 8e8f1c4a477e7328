"""How the runs of a lesson are done: one after the other, with their progress shown and their records kept."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from common.config import MachineName
from common.record import records
from launch.launchers import detect
from launch.run import available, lock
from launch.run.display import Display
from launch.run.options import LaunchOptions, TimeLimit, seen_from_root
from launch.run.session import run_group


@dataclass(frozen=True)
class RunOptions(LaunchOptions):
    """How the runs of a lesson are done, whichever it is."""

    time_limit: TimeLimit = 900.0
    """Seconds after which a run is ended and recorded as timed out."""
    results: Path = Path("results/lessons")
    """Folder for the records; a run writes RESULTS/MACHINE/RUN.json. Apart from those of matrices, with which they cannot be compared."""
    machine: MachineName = None
    """Name of this machine in the results. Default: the name of the Slurm cluster or PBS server, else the host name."""


# A field of a lesson that has runs, and its default. On the command line its options are those of the lesson.
Options = Annotated[RunOptions, tyro.conf.arg(name="")]
DEFAULT = RunOptions()


def run(options, jobs_of, settled, show):
    """Runs a lesson and returns the exit status. Raises UserError, before anything has run, for what cannot work.

    `jobs_of(results, machine, stamp)`: its jobs, whose run names begin with `stamp`. `settled(jobs, launcher)`: those that can run here.
    `show(records)` prints what came out.
    """
    results, machine = seen_from_root(options.results), records.machine_name(options)
    os.chdir(records.ROOT)
    stamp = f"{records.new_stamp()}-lesson"
    jobs = jobs_of(results, machine, stamp)
    launcher = detect.choose(options.launcher, options.launcher_args)
    available.check(jobs, launcher)
    folder = records.folder(jobs[0].settings)
    records.make_folder(folder)
    with lock.held(folder, jobs, options.share_machine):
        jobs, runs = settled(jobs, launcher), []
        try:
            with Display(len(jobs)) as display:
                for numbered in enumerate(jobs, 1):
                    run_group([numbered], launcher, options.time_limit, display, runs)
            show(runs)
        finally:
            if runs:
                print(f"records: {folder}/{stamp}-*.json")
    return 0 if all(record.status == "ok" for record in runs) else 1
