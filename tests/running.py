"""Really running things: backends under the environment's mpiexec, and the matrix in a copy of the checkout."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
TIME_LIMIT_SECONDS = 240


def environ():
    """The environment for a run: without what a launcher around the tests may have set."""
    cleared = ("PMI_", "SLURM_", "OMPI_", "PALS_", "PBS_", "TANDEM_", "MASTER_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(cleared)}
    return kept | {"OMP_NUM_THREADS": "1"}


def train_in_turn(backend, ranks, folder, runs, sabotage="none"):
    """[(record, final parameters), …] of a backend trained with each of several lists of arguments, in the same processes.

    Both are None from the first run on that failed.
    """
    arguments = []
    for number, run in enumerate(runs):
        arguments += ["THEN"] if arguments else []
        arguments += ["--results", folder, "--machine", "here", "--run-id", f"run{number}", *run]
    command = [BIN / "mpiexec", "-n", ranks, BIN / "python", "-m", "tests.sabotage", backend, sabotage, folder, *arguments]
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, env=environ(), capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS, check=False
    )
    found = []
    for number in range(len(runs)):
        paths = folder / "here" / f"run{number}.json", folder / f"run{number}.npz"
        record = json.loads(paths[0].read_text()) if paths[0].exists() else {"status": "none", "error": done.stdout + done.stderr}
        found.append((record, dict(np.load(paths[1])) if paths[1].exists() else None))
    return found


def train(backend, ranks, folder, *arguments, sabotage="none"):
    """(exit status, record, final parameters) of a backend trained at a number of ranks; parameters None where it failed."""
    run_id = f"{backend}-{ranks}-{sabotage}"
    command = [BIN / "mpiexec", "-n", ranks, BIN / "python", "-m", "tests.sabotage", backend, sabotage, folder]
    command += ["--results", folder, "--machine", "here", "--run-id", run_id, *arguments]
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, env=environ(), capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS, check=False
    )
    path = folder / "here" / f"{run_id}.json"
    assert path.exists(), done.stdout + done.stderr
    parameters = folder / f"{run_id}.npz"
    return done.returncode, json.loads(path.read_text()), dict(np.load(parameters)) if parameters.exists() else None


def left_over(folder):
    """Command lines of the processes that were started in a folder and still run."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()) == folder and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.cmdline())
        except (psutil.Error, OSError):
            continue
    return found
