"""Matrices that are killed by SIGKILL, and what becomes of their runs."""

import contextlib
import os
import re
import subprocess
import time
from pathlib import Path

from launch.run import supervisor
from tests.support.running import BIN, environ, records_in

SETTINGS = ("--workloads", "cnn", "--no-step-breakdown", "--no-stop-at-target", "--machine", "here")


def wait_until(condition, limit_seconds=20):
    """Waits until a condition holds; fails where it does not within the limit."""
    limit = time.monotonic() + limit_seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


@contextlib.contextmanager
def marked(mark, *command):
    """A process that carries the mark of a run, from the moment at which it can be found; it is killed in the end."""
    process = subprocess.Popen(command, env=os.environ | {supervisor.MARK: mark})
    try:
        wait_until(lambda: process.pid in supervisor.marked())
        yield process
    finally:
        process.kill()
        process.wait()


def start(checkout, folder, *arguments, num_ranks=2, backends="ddp", variables=None):
    """The Popen of a matrix at one size in a copy of the checkout, with `variables`, if any."""
    command = [BIN / "python", "-m", "launch.matrix", num_ranks, "--backends", backends, *SETTINGS, "--results", folder]
    return subprocess.Popen(
        [str(part) for part in (*command, *arguments)], cwd=checkout, env=environ() | (variables or {}), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def wait_until_training(folder, num_runs=1):
    """Waits until the records in a folder have the process numbers, which is just before the first step; side by side one has stopped."""
    wait_until(lambda: [bool(record["pids_by_rank"]) for record in records_in(folder)] == [True] * num_runs, 180)


def ranks_of(folder):
    """The numbers of the processes on this machine that belong to runs with their record in a folder."""
    return [pid for pid, run in supervisor.marked().items() if run.startswith(f"{folder}{os.sep}")]


def shared_memory_of(pids):
    """The paths of the files in /dev/shm that these processes map."""
    maps = [Path(f"/proc/{pid}/maps").read_text() for pid in pids if Path(f"/proc/{pid}").exists()]
    return [path for path in Path("/dev/shm").iterdir() if any(str(path) in text for text in maps)]


@contextlib.contextmanager
def allocation(cluster, num_ranks=2):
    """An allocation of the two nodes of a Slurm cluster, whose variables are given; gives the variables of a matrix in it.

    No shell holds the allocation: it outlives the matrix, whose death alone has to end the ranks.
    """
    variables = environ() | cluster
    salloc = ["salloc", "--no-shell", "-N2", f"-n{num_ranks}"]
    granted = subprocess.run(salloc, env=variables, capture_output=True, text=True, timeout=60, check=True)
    job = re.search(r"Granted job allocation (\d+)", granted.stderr)[1]
    try:
        yield cluster | {"SLURM_JOB_ID": job}
    finally:
        subprocess.run(["scancel", job], env=variables, timeout=60, check=False)
