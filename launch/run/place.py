"""A rank of a step of launch/matrix.sh --check: it meets the other ranks as those of a run do, says where it is, and leaves.

python -m launch.run.place CORES JOIN_SECONDS: the cores that a rank needs, 0 where its binding is the launcher's, and --join-timeout.
"""

import json
import os
import re
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, TypedDict

from common.ranks import binding, ending, gpus, machine, meeting, mpi, watchdog
from common.ranks.launcher_variables import Ranks, expect_planned, expect_variables, from_environment, node_name
from common.record import environment

# Before the JSON of an answer, since launchers print lines of their own.
MARKER = "tandem-answer: "
# Some link the library of MPI's C++ bindings too, which is not this one.
RESOLVED = re.compile(r"^\s*libmpi(?!\w*cxx)\w*\.so\S* => (not found|\S+)", re.MULTILINE)


class Node(TypedDict):
    """What is found on a node, where it is not of one rank."""

    num_cores: int
    ignored_variables: dict[str, str]
    # As SharedMemory of common/ranks/machine.py.
    shared_memory: tuple[int, int] | None
    # The path of Horovod's MPI library, or `not found`; None where Horovod has none.
    horovod: str | None
    # The model of each GPU, and last the driver's version.
    gpu: list[str]
    num_gpus: int
    # The variables that select GPUs.
    visible: dict[str, str]


class Place(NamedTuple):
    """Where a rank is: the physical cores that it would train on, and the number of those that the launcher has given it."""

    rank: int
    host: str
    node: str
    cores: list[int]
    num_allowed: int
    quota_cores: float | None
    # The version and the path of the MPI that mpi4py loads, or why it loads none.
    mpi: tuple[str, str] | None
    mpi_problem: str | None
    # Of rank 0.
    of_node: Node | None


def main(argv: list[str]) -> None:
    """Is a rank of a step."""
    ranks = None
    try:
        ranks = from_environment()
        expect_planned(ranks)
        expect_variables(argv)
        cores_per_rank, join_seconds = argv[1:]
        watchdog.begin(0, ranks.rank, ending.leave_hung, float(join_seconds))
        meeting.agree_on_master(ranks)
        answer(place_of(ranks, int(cores_per_rank)))
    except (Exception, KeyboardInterrupt) as problem:
        ending.leave_failed(problem, *ending.describe_failure(problem, None), ranks)
    ending.leave()


def answer(value: object) -> None:
    """Prints an answer for the program that asks."""
    print(f"{MARKER}{json.dumps(value)}\n", end="", flush=True)


def place_of(ranks: Ranks, cores_per_rank: int) -> Place:
    """Returns the Place of this rank."""
    core_of, cores = binding.core_of_threads(), binding.INHERITED_CORES
    num_allowed = binding.num_cores(cores, core_of)
    if cores_per_rank:
        cores = binding.cores_for(cores, ranks.local_rank, cores_per_rank, core_of)
    problem = mpi.problem()
    return Place(
        ranks.rank, socket.gethostname(), node_name(), sorted({core_of.get(core, core) for core in cores}), num_allowed,
        machine.quota_cores(), None if problem else mpi_library(), problem, None if ranks.rank else describe(),
    )  # fmt: skip


def mpi_library() -> tuple[str, str]:
    """Returns the version and the path of the MPI that mpi4py loads."""
    version = mpi.loaded().Get_library_version().strip("\0 \n").partition("\n")[0]
    with open("/proc/self/maps") as maps:
        paths = sorted({line.split()[-1] for line in maps if "/libmpi" in line})
    return " ".join(version.split()), (paths or ["?"])[0]


def describe() -> Node:
    """Returns the Node on which this runs."""
    num_gpus = gpus.count()
    return {
        "num_cores": environment.describe().num_cores,
        "ignored_variables": binding.ignored_variables({}),
        "shared_memory": machine.shared_memory(),
        "horovod": horovod_mpi(),
        "gpu": gpus.all_models() if num_gpus else [],
        "num_gpus": num_gpus or 0,
        "visible": {name: os.environ[name] for name in binding.VISIBLE_GPUS if name in os.environ},
    }


def horovod_mpi() -> str | None:
    """Returns the path of Horovod's MPI library, or `not found`; None where Horovod is not installed, has no MPI or ldd is missing.

    Its libraries are only resolved: where they do not fit together, importing them may kill.
    """
    if not (spec := find_spec("horovod")) or not spec.origin:
        return None
    libraries = sorted(Path(spec.origin).parent.glob("*/mpi_lib*.so"))
    try:
        process = subprocess.run(["ldd", *libraries], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return next(iter(RESOLVED.findall(process.stdout)), None)


if __name__ == "__main__":
    main(sys.argv)
