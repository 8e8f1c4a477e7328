"""A rank of a step of launch/matrix.sh --check: it meets the other ranks as those of a run do, says where it is, and leaves.

python -m launch.run.place CORES JOIN_SECONDS: the cores that a rank needs, 0 where its binding is the launcher's, and --join-timeout.
"""

import json
import socket
import sys
from typing import NamedTuple

from common.ranks import binding, ending, machine, meeting, mpi, watchdog
from common.ranks.launcher_variables import Ranks, expect_planned, expect_variables, from_environment, node_name

# Before the JSON of an answer, since launchers print lines of their own.
MARKER = "tandem-answer: "


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
        machine.quota_cores(), None if problem else mpi_library(), problem,
    )  # fmt: skip


def mpi_library() -> tuple[str, str]:
    """Returns the version and the path of the MPI that mpi4py loads."""
    version = mpi.loaded().Get_library_version().strip("\0 \n").partition("\n")[0]
    with open("/proc/self/maps") as maps:
        paths = sorted({line.split()[-1] for line in maps if "/libmpi" in line})
    return " ".join(version.split()), (paths or ["?"])[0]


if __name__ == "__main__":
    main(sys.argv)
