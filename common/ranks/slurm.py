"""Slurm: how srun lets ranks find each other, and where the ranks of a step can meet without MPI."""

import itertools
import math
import os
import re
import subprocess
from collections.abc import Iterator

# Set by users and sites to choose for srun, and by srun for its ranks; srun does not set it for `none`.
MPI_TYPE = "SLURM_MPI_TYPE"
ITEM = re.compile(r"(?:[^,\[]|\[[^]]*\]?)+")
RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
MAX_SHOWN, MAX_HOSTS = 40, 100_000
LISTED = re.compile(r"^(?:srun: |\s+)(\w+)$", re.MULTILINE)
VERSIONS = re.compile(r"specific pmix plugin versions available: *([\w, ]+)$", re.MULTILINE)
# Plugins for PMIx: Slurm's, those of one version, and ParaStation's.
PMIX = re.compile(r"(ps)?pmix(_v\d+)?")
# Below those that Linux assigns to any process.
PORTS = range(10_000, 30_000)


def mpi_types() -> list[str]:
    """Lists the values of srun's --mpi on this machine; empty without srun, or where it lists none."""
    try:
        listed = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True, check=False, timeout=30)
    except FileNotFoundError:
        return []
    text = listed.stdout + listed.stderr
    return LISTED.findall(text) + [name.strip() for names in VERSIONS.findall(text) for name in names.split(",")]


def interface(mpi_type: str) -> str:
    """Returns the interface to which a value of srun's --mpi belongs: pmix for every plugin of PMIx, else the value."""
    return "pmix" if PMIX.fullmatch(mpi_type) else mpi_type


def advice(mpi_type: str) -> str:
    """Returns what to do where ranks did not find each other with this value of srun's --mpi."""
    offered = [name for name in mpi_types() if name != mpi_type]
    return (
        f"srun --mpi={mpi_type} was to join the ranks, and offers {', '.join(offered) or 'nothing else'}; choose what their MPI speaks: "
        f'mpi = "…" in the machine file, or {MPI_TYPE}'
    )


def hosts(node_list: str) -> Iterator[str]:
    """Yields the hosts of a list such as `n[1-4,7],m1`. Raises ValueError for an invalid range, and for more nodes than a machine has."""
    for item in ITEM.findall(node_list):
        # Every second piece was in brackets.
        pieces = re.split(r"\[([^]]*)\]", item)
        choices = [_numbers(piece) if number % 2 else [piece] for number, piece in enumerate(pieces)]
        if math.prod(map(len, choices)) > MAX_HOSTS:
            raise ValueError(f"{item[:MAX_SHOWN]!r} are more than {MAX_HOSTS:,} nodes")
        yield from map("".join, itertools.product(*choices))


def _numbers(ranges: str) -> list[str]:
    """Expands ranges such as `001-003,007` to their numbers, with leading zeros."""
    numbers: list[str] = []
    for text in ranges.split(","):
        match = RANGE.fullmatch(text)
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        num_digits, values = len(first), range(int(first), int(last) + 1)
        if not values:
            raise ValueError(f"{text[:MAX_SHOWN]!r} is no range of numbers such as 001-128")
        numbers += [f"{value:0{num_digits}d}" for value in values]
    return numbers


def first_host(node_list: str) -> str:
    """Gives the first host of a list such as `n[1-4,7],m1`."""
    return next(hosts(node_list))


def meeting_place() -> tuple[str, int] | None:
    """Derives the host of rank 0 and a port, which may be in use, from the variables of the step of this process; None without them.

    They are the same on every rank. Steps of a job have different ports.
    """
    # Ranks that are laid out by a list of nodes may begin on any.
    if not os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_DISTRIBUTION") == "arbitrary":
        return None
    number = int(os.environ["SLURM_JOB_ID"]) * 1009 + int(os.environ["SLURM_STEP_ID"])
    return first_host(os.environ["SLURM_STEP_NODELIST"]), PORTS[number % len(PORTS)]
