"""Really running things: backends under the environment's mpiexec, and the matrix in a copy of the checkout."""

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import psutil

from common.data import sharding

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv" / "bin"
TIME_LIMIT_SECONDS = 400
# A backend that computes nothing, as `with_backends` takes it: what only runs a matrix starts ranks in a fifth of the time.
LIGHT = {"light": (ROOT / "tests" / "support" / "light_backend.py").read_text()}
# The variables of runs whose number of steps is of no concern.
FEW_STEPS = {sharding.STEPS_VARIABLE: "6"}
# A lock of these tests' own: they run beside a matrix of whoever works on this machine, and the other way round.
LOCK = Path(tempfile.gettempdir()) / f"tandem-tests-{os.getpid()}.lock"
atexit.register(LOCK.unlink, missing_ok=True)


def environ():
    """The environment for a run: without what a launcher around the tests may have set."""
    cleared = ("PMI_", "SLURM_", "OMPI_", "PALS_", "PBS_", "TANDEM_", "MASTER_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(cleared)}
    return kept | {"OMP_NUM_THREADS": "1", "TANDEM_LOCK": str(LOCK)}


def completed(*command, cwd=ROOT, variables=None, seconds=TIME_LIMIT_SECONDS):
    """The CompletedProcess of a command, with what it printed, in the environment of a run and with these variables."""
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environ() | (variables or {}), capture_output=True, text=True, timeout=seconds,
        check=False,
    )  # fmt: skip


def matrix(checkout, folder, *arguments, around=(), variables=None):
    """The CompletedProcess of a matrix in a copy of the checkout, whose records go to FOLDER/here; `around`: a command that starts it."""
    program = (*around, BIN / "python", "-m", "launch.matrix")
    return completed(*program, *arguments, "--results", folder, "--machine", "here", cwd=checkout, variables=variables)


def records_in(folder):
    """The records of a matrix."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("here/*.json"))]


def train_in_turn(ranks, folder, runs):
    """Returns [(record, final parameters), …] of several (backend, fault, *arguments), trained in the same processes.

    The parameters are None where a run failed other than by a RunError, and so are those of all runs after it, which have no
    record either. What fails when a record is written already, or kills the process, only the exit status shows: it counts as the last
    run's that has one. Which backends can be trained in the same processes: tests/support/backends.py.
    """
    # The watchdog of a run that is over would end the processes in the middle of the next.
    named = [
        (backend, fault, "--watchdog-timeout", 0, *_named(folder, f"run{number}"), *arguments)
        for number, (backend, fault, *arguments) in enumerate(runs)
    ]
    status, printed = _run(ranks, folder, [word for run in named for word in ("THEN", *run)][1:], 30 * len(runs))
    results = [_result(folder, f"run{number}", printed) for number in range(len(runs))]
    recorded = [record for record, _ in results if record["status"] != "none"]
    if status and recorded and recorded[-1]["status"] != "failed":
        recorded[-1] |= {"status": "failed", "error": printed}
    return results


def train(backend, ranks, folder, *arguments, fault="none"):
    """Returns (exit status, record, final parameters) of a backend trained at a number of ranks; parameters None where it failed."""
    run_id = f"{backend}-{ranks}-{fault}"
    status, printed = _run(ranks, folder, (backend, fault, *_named(folder, run_id), *arguments))
    return status, *_result(folder, run_id, printed)


def _named(folder, run_id):
    """The arguments of a run that has its record in a folder."""
    return "--no-step-breakdown", "--results", folder, "--machine", "here", "--run-id", run_id


def _run(ranks, folder, arguments, seconds=0):
    """Returns (exit status, what was printed) of runs under the environment's mpiexec, whose temporary folder is that of the records."""
    command = [BIN / "mpiexec", "-n", ranks, BIN / "python", "-m", "tests.support.fault_injection", folder, *arguments]
    done = completed(*command, variables={"TMPDIR": str(folder)}, seconds=max(seconds, TIME_LIMIT_SECONDS))
    return done.returncode, done.stdout + done.stderr


def _result(folder, run_id, printed):
    """Returns (record, final parameters) that a run has left; a record of what was printed where it has left none."""
    path, parameters = folder / "here" / f"{run_id}.json", folder / f"{run_id}.npz"
    record = json.loads(path.read_text()) if path.exists() else {"status": "none", "error": printed}
    return record, dict(np.load(parameters)) if parameters.exists() else None


def copied(folder):
    """A copy of this checkout in a folder, uncommitted changes and all, with the same environment."""
    copy = folder / "tandem"
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    (copy / ".venv").symlink_to(ROOT / ".venv")
    return copy


def make_light(checkout):
    """Makes the environment .light of a copied checkout beside this Python, which has everything."""
    variables = {"TANDEM_PYTHON": str(BIN / "python"), "PIP_NO_INDEX": "1"}
    made = completed(checkout / "launch/setup/light.sh", cwd=checkout, variables=variables)
    assert made.returncode == 0, made.stderr


@contextlib.contextmanager
def with_backends(checkout, texts):
    """A copied checkout that has these backends too, {name: text of its file}, within this context."""
    paths = {checkout / "frameworks" / f"{name}.py": text for name, text in texts.items()}
    for path, text in paths.items():
        path.write_text(text)
    try:
        yield checkout
    finally:
        for path in paths:
            path.unlink()


def left_over(folder):
    """Command lines of the processes that were started in a folder and still run."""
    command_lines = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()) == folder and process.status() != psutil.STATUS_ZOMBIE:
                command_lines.append(process.cmdline())
        except (psutil.Error, OSError):
            continue
    return command_lines
