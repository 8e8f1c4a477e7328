"""The record of a run: one JSON file, written when the run starts and replaced, never half written, when it ends."""

import json
import math
import os
import platform
import re
import socket
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from common import config
from common.errors import UserError

SCHEMA = 2
# What the folder of a run's traces is called after its record.
TRACES_END = ".trace"
ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("torch", "tensorflow-cpu", "tensorflow", "tf-keras", "horovod", "deepspeed", "mpi4py", "mpich", "numpy", "scikit-learn")
# Only what changes how a run goes; names of people, projects and keys stay out.
ENVIRONMENT = re.compile(
    r"(OMP|KMP|MKL|OPENBLAS|HOROVOD|NCCL|GLOO|MPICH|MPIR_CVAR|I_MPI|FI|UCX|MALLOC|TORCH|TORCHINDUCTOR|CUDA|DS"
    r"|TF_(CPP|DETERMINISTIC|ENABLE|FORCE|GPU|NUM|USE|XLA))_[A-Z0-9_]+|LD_PRELOAD"
)


def new(backend, settings, ranks, launch, surroundings):
    """The record of a run that is about to start; what is not known yet is None. Keys: results/README.md.

    `launch` is what the launcher's side told of itself: `launcher`, `command` and `launched_at` (seconds since 1970); `surroundings`
    is the `environment`, which only the rank that writes the record needs to know.
    """
    return {
        "schema": SCHEMA,
        "status": "started",
        "error": None,
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "backend": backend,
        "workload": settings.workload,
        "workload_digest": None,
        "ranks": ranks.size,
        "nodes": None,
        "pids_by_rank": None,
        "repeat": settings.repeat,
        "seed": settings.seed,
        "scaling": settings.scaling,
        "launcher": launch["launcher"],
        "command": launch["command"],
        "target": settings.target,
        "reached": None,
        "time_to_solution_seconds": None,
        "accuracy": None,
        "samples_per_second": None,
        "in_sync": None,
        "oversubscribed": None,
        "launch_seconds": None,
        "import_seconds": None,
        "init_seconds": None,
        "load_seconds": None,
        "samples_per_epoch": None,
        "samples_dropped_per_epoch": None,
        "samples_padded_per_epoch": None,
        "losses": [],
        "learning_rates": [],
        "step_seconds": [],
        "train_seconds": [],
        "eval_seconds": [],
        "accuracies": [],
        "eval_losses": [],
        "peak_memory_bytes": None,
        "peak_memory_bytes_by_rank": None,
        "energy_joules": None,
        "energy_source": None,
        "parameter_digests": [],
        "resumed_after_epochs": None,
        "account": None,
        "timeline": None,
        "mpi_profile": None,
        "settings": config.as_json(settings),
        "library_configuration": None,
        "environment": surroundings,
        "output_tail": None,
    }


def folder(settings):
    return settings.results / machine_name(settings)


def trace_folder(settings):
    """The folder of the traces of a run that has a name, beside its record."""
    return folder(settings) / f"{settings.run_id}{TRACES_END}"


def make_trace_folder(settings, flag):
    """The folder of a run's traces, made, which the flag wants. Raises UserError where the ranks could not know its name."""
    if settings.run_id is None:
        raise UserError(f"{flag} writes into a folder with the run's name; give one with --run-id")
    trace_folder(settings).mkdir(parents=True, exist_ok=True)
    return trace_folder(settings)


def machine_name(settings):
    return settings.machine or os.environ.get("SLURM_CLUSTER_NAME") or socket.gethostname().split(".")[0]


def run_name(backend, settings, num_ranks):
    return settings.run_id or f"{time.strftime('%Y%m%d-%H%M%S')}-{settings.workload}-{backend}-n{num_ranks}-s{settings.seed}"


def write(path, record):
    """Writes the record to a file beside `path` and moves it there. Numbers that are not finite become null."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(_finite(record), indent=1, allow_nan=False) + "\n")
    os.replace(part, path)


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def make_folder(path, what="records", option="--results"):
    """Makes the folder and tries to write in it. Raises UserError where that cannot be; the option gives another folder."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"cannot write {what} to {path} ({error.strerror}); give another folder with {option}") from None


def read(path):
    """The record in a file. Raises UserError where it is damaged or of another schema."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as a record ({error}); move it away") from None
    schema = record.get("schema") if isinstance(record, dict) else None
    if schema != SCHEMA:
        raise UserError(
            f"{path} has schema {schema}, this Tandem reads and writes {SCHEMA}; give another folder with --results or move it away"
        )
    return record


def files(folder, ends=(".json",)):
    """The files of a folder and its subfolders whose names end so, by name; what lies in the folder of a run's traces is no record."""
    found = sorted(path for path in folder.rglob("*") if path.name.endswith(ends))
    return [path for path in found if not any(part.endswith(TRACES_END) for part in path.relative_to(folder).parts[:-1])]


def read_all(path):
    """The records of one file, or of every .json file in a folder and in its subfolders but those of traces, by name."""
    if not path.exists():
        raise UserError(f"{path} is not there; give a record or a folder of records")
    paths = files(path) if path.is_dir() else [path]
    return [read(one) for one in paths if one != ROOT / "results" / "schema.json"]


def environment():
    """What a result depends on beside the settings: versions, machine, commit, whitelisted variables."""
    return {
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "mpi": None,
        "host": socket.gethostname(),
        "os": platform.platform(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "cores_of_rank_0": None,
        "allocator_keeps": False,
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "git_commit": _git("rev-parse", "HEAD"),
        "git_changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "variables": {name: os.environ[name] for name in sorted(os.environ) if ENVIRONMENT.fullmatch(name)},
    }


def mpi_library():
    """Name and version of the MPI library that this process uses, or None."""
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.initialize = False
        from mpi4py import MPI

        return MPI.Get_library_version().split("\n")[0].strip("\0 ")
    except (ImportError, RuntimeError):
        return None


def _version(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu_model():
    try:
        return re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[1]
    except (OSError, TypeError):
        return platform.processor() or platform.machine()


def _git(*arguments):
    try:
        return (
            subprocess.run(
                ["git", "--no-optional-locks", "-C", ROOT, *arguments], capture_output=True, text=True, check=True
            ).stdout.strip()
            or None
        )
    except (OSError, subprocess.CalledProcessError):
        return None
