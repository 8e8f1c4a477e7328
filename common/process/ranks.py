"""Rank and world size of this process, from the environment variables of the launcher, and the name of its node."""

import hashlib
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from common.errors import UserError
from common.process import mpi


class Ranks(NamedTuple):
    """Global rank and world size, local rank and size on the node, and the launcher they come from."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    source: str = "alone"


class Source(NamedTuple):
    """The variables of a launcher. Local rank and size are derived from rank and size if their variables are absent."""

    name: str
    rank: str
    size: str
    local_rank: tuple[str, ...] = ()
    local_size: tuple[str, ...] = ()


TORCHRUN = Source("torchrun", "RANK", "WORLD_SIZE", ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",))
PALS = Source("PALS", "PALS_RANKID", "PMI_SIZE", ("PALS_LOCAL_RANKID",), ("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"))
OPEN_MPI = Source(
    "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("OMPI_COMM_WORLD_LOCAL_RANK",), ("OMPI_COMM_WORLD_LOCAL_SIZE",)
)
PMI = Source("MPICH/Intel PMI", "PMI_RANK", "PMI_SIZE", ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"))
HOROVODRUN = Source("horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE", ("HOROVOD_LOCAL_RANK",), ("HOROVOD_LOCAL_SIZE",))
SLURM = Source("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_LOCALID",), ())

# Variables of launchers that set the rank but not the world size, which MPI then provides.
ALPS_RANK = "ALPS_APP_PE"
RANK_ONLY = (ALPS_RANK, "PMIX_RANK")

# Of a rank and of a number of ranks.
MAX_DIGITS = 7
NUMBER = re.compile(rf"-?[0-9]{{1,{MAX_DIGITS}}}")

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def from_environment(environ: Mapping[str, str] | None = None) -> Ranks:
    """Reads the Ranks of this process from `environ` (default: os.environ).

    Launchers may be nested: torchrun's workers inherit the variables of the srun or mpiexec around it, and Hydra and Open MPI
    start one daemon per node through srun. The inner launcher then takes precedence. Raises UserError, with the
    variables, if two launchers contradict each other.
    """
    environ = os.environ if environ is None else environ
    if "TORCHELASTIC_RUN_ID" in environ:
        return _read(TORCHRUN, environ)
    present = [source for source in (PALS, OPEN_MPI, PMI, TORCHRUN, HOROVODRUN) if source.rank in environ]
    if "SLURM_STEP_NUM_TASKS" in environ and not {"MPI_LOCALRANKID", "OMPI_COMM_WORLD_RANK", "PALS_RANKID"} & environ.keys():
        present.append(SLURM)
    if not present:
        return _from_mpi() if any(name in environ for name in RANK_ONLY) else Ranks()
    first = present[0]
    for source in present[1:]:
        if _rank_and_size(source, environ) != _rank_and_size(first, environ):
            raise UserError(
                f"{_format(first, environ)} contradicts {_format(source, environ)}; "
                "unset the variables that the launcher in use did not set"
            )
    # srun --mpi=pmi2 sets PMI's rank and size but not the local ones, which are in Slurm's own variables.
    with_local_size = [source for source in present if source is SLURM or any(name in environ for name in source.local_size)]
    return _read([*with_local_size, first][0], environ)


def _rank_and_size(source: Source, environ: Mapping[str, str]) -> tuple[int, int]:
    rank, size = _number(source.rank, environ), _number(source.size, environ)
    if not 0 <= rank < size:
        raise UserError(f"{_format(source, environ)} is invalid: ranks must be from 0 to size - 1")
    return rank, size


def _format(source: Source, environ: Mapping[str, str]) -> str:
    return f"{source.rank}={environ.get(source.rank, '')} {source.size}={environ.get(source.size, '')} ({source.name})"


def _read(source: Source, environ: Mapping[str, str]) -> Ranks:
    rank, size = _rank_and_size(source, environ)
    local_size = _slurm_local_size(environ) if source is SLURM else _first(source.local_size, environ, size)
    local_rank = _first(source.local_rank, environ, rank % local_size if local_size > 0 else 0)
    if not 0 <= local_rank < local_size <= size:
        raise UserError(
            f"{_format(source, environ)} with local rank {local_rank} of {local_size} is invalid: ranks must be from 0 to size - 1"
        )
    return Ranks(rank, size, local_rank, local_size, source.name)


def _first(names: Iterable[str], environ: Mapping[str, str], default: int) -> int:
    return next((_number(name, environ) for name in names if name in environ), default)


def _number(name: str, environ: Mapping[str, str]) -> int:
    if name not in environ:
        raise UserError(f"{name} is not set although its launcher's other variables are; start all ranks with one launcher")
    if not NUMBER.fullmatch(environ[name]):
        raise UserError(f"{name} is {environ[name]!r}; it must be an integer of up to {MAX_DIGITS} digits")
    return int(environ[name])


def _slurm_local_size(environ: Mapping[str, str]) -> int:
    """Counts the tasks on this node, from SLURM_STEP_TASKS_PER_NODE (format: `4(x2),3`)."""
    name = "SLURM_STEP_TASKS_PER_NODE"
    tasks: list[int] = []
    try:
        for part in environ.get(name, environ["SLURM_STEP_NUM_TASKS"]).split(","):
            count, _, times = part.rstrip(")").partition("(x")
            tasks += [int(count)] * int(times or 1)
        return tasks[int(environ.get("SLURM_NODEID", 0))]
    except (ValueError, IndexError):
        raise UserError(f"{name}={environ.get(name)} contradicts SLURM_NODEID={environ.get('SLURM_NODEID')}") from None


def _from_mpi() -> Ranks:
    world = mpi.initialized().COMM_WORLD
    node = world.Split_type(mpi.loaded().COMM_TYPE_SHARED)
    return Ranks(world.rank, world.size, node.rank, node.size, "mpi4py")


def node_name() -> str:
    """Reads the name of this boot of the node's kernel, the same in all its containers; the host name where Linux does not show it."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()


def node_number() -> int:
    """Converts the name of the node to a number that float64 holds."""
    return int.from_bytes(hashlib.sha256(node_name().encode()).digest()[:6], "big")
