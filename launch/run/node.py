"""Finds what a matrix checks on a node on which ranks run.

MPI is loaded in a process of its own, python -m launch.run.node, and Horovod's libraries are only resolved: where they do not fit together,
importing them may kill.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict, final

import psutil

from common.declarations import ROOT
from common.ranks import binding, gpus, machine, mpi
from common.record import environment
from launch.run import failures

START_MPI = (sys.executable, "-m", "launch.run.node")
INIT_SECONDS = 60
RDMA = Path("/sys/class/infiniband")
# Variables by which a launcher lets its ranks find each other: MPI is tried alone.
OF_LAUNCHER = ("PMI_", "PMIX_", "OMPI_", "PALS_", "SLURM_")
# Some link the library of MPI's C++ bindings too, which is not this one.
RESOLVED = re.compile(r"^\s*libmpi(?!\w*cxx)\w*\.so\S* => (not found|\S+)", re.MULTILINE)


@final
class Mpi(TypedDict):
    """The MPI that mpi4py loads, and why it does not start; None if it does."""

    version: str
    path: str
    problem: str | None


@final
class NoMpi(TypedDict):
    """Why mpi4py cannot load MPI."""

    error: str


class Node(TypedDict):
    """What is found on a node."""

    host: str
    packages: dict[str, str]
    num_cores: int
    num_cores_allowed: int
    ignored_variables: dict[str, str]
    quota_cores: float | None
    available_bytes: float
    interfaces: list[str]
    # The names of its devices for remote access to memory.
    rdma_devices: list[str]
    mpi: Mpi | NoMpi
    # As SharedMemory of common/ranks/machine.py.
    shared_memory: tuple[int, int] | None
    # The path of Horovod's MPI library, or `not found`; None where Horovod has none.
    horovod: str | None
    # The model of each GPU, and last the driver's version.
    gpu: list[str]
    num_gpus: int
    # Versions of the packages of NCCL.
    nccl: list[str]
    # The variables that select GPUs.
    visible: dict[str, str]


def describe() -> Node:
    """Returns what the lines of launch/run/check.py are derived from."""
    described = environment.describe()
    num_gpus = gpus.count()
    return {
        "host": described.host,
        "packages": described.packages,
        "num_cores": described.num_cores,
        "num_cores_allowed": binding.num_cores(os.sched_getaffinity(0), binding.core_of_threads()),
        "ignored_variables": binding.ignored_variables({}),
        "quota_cores": machine.quota_cores(),
        "available_bytes": machine.available_bytes(),
        "interfaces": sorted(psutil.net_if_addrs()),
        "rdma_devices": rdma_devices(),
        "mpi": of_mpi4py(),
        "shared_memory": machine.shared_memory(),
        "horovod": of_horovod(),
        "gpu": gpus.all_models() if num_gpus else [],
        "num_gpus": num_gpus or 0,
        "nccl": sorted({package.version for package in distributions() if (package.name or "").startswith("nvidia-nccl")}),
        "visible": {name: os.environ[name] for name in binding.VISIBLE_GPUS if name in os.environ},
    }


def rdma_devices() -> list[str]:
    """Lists the devices for remote access to memory that Linux shows."""
    return sorted(path.name for path in RDMA.glob("*"))


def of_mpi4py() -> Mpi | NoMpi:
    """Loads and starts the MPI of mpi4py."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(OF_LAUNCHER)}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(START_MPI, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            status = process.wait(timeout=INIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
            output.write(f"\nMPI_Init did not return within {INIT_SECONDS} s")
        output.seek(0)
        lines = output.read().splitlines()
    # Libraries of MPI print before it and after it.
    loaded: Mpi | None = next((json.loads(line) for line in lines if line.startswith('{"version"')), None)
    if loaded and status == 0:
        return loaded
    reason = failures.reported(lines) or failures.last_line(lines) or f"it ended with exit status {status}"
    return {**loaded, "problem": reason} if loaded else {"error": reason}


def of_horovod() -> str | None:
    """Returns the path of Horovod's MPI library, or `not found`; None where Horovod is not installed, has no MPI or ldd is missing."""
    if not (spec := find_spec("horovod")) or not spec.origin:
        return None
    libraries = sorted(Path(spec.origin).parent.glob("*/mpi_lib*.so"))
    try:
        process = subprocess.run(["ldd", *libraries], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return next(iter(RESOLVED.findall(process.stdout)), None)


def loaded_mpi() -> Mpi:
    """Loads the MPI of mpi4py, which has no problem so far."""
    version = mpi.loaded().Get_library_version().strip("\0 \n").partition("\n")[0]
    with open("/proc/self/maps") as maps:
        paths = sorted({line.split()[-1] for line in maps if "/libmpi" in line})
    return {"version": " ".join(version.split()), "path": (paths or ["?"])[0], "problem": None}


if __name__ == "__main__":
    print(json.dumps(loaded_mpi()), flush=True)
    mpi.loaded().Init()
