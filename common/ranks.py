"""Who am I, of how many: read from the variables that the launcher set."""

import os
from typing import NamedTuple

from common.errors import UserError


class Ranks(NamedTuple):
    """This process among all of a run: global rank and size, rank and size on its node, and who said so."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    source: str = "alone"


class Source(NamedTuple):
    """The variables of one launcher. Local variables may be absent: then they follow from rank and size."""

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

# Launchers that tell a rank but not how many there are: the MPI library knows.
RANK_ONLY = ("ALPS_APP_PE", "PMIX_RANK")


def from_environment(environ=None):
    """The ranks of this process, from `environ` (default: os.environ).

    A launcher may itself have been started by another: torchrun's workers see the variables of the srun or mpiexec
    around it, and Hydra and Open MPI start one helper a node through srun. There the inner launcher counts.
    Raises UserError, naming the variables, where two launchers contradict each other.
    """
    environ = os.environ if environ is None else environ
    if "TORCHELASTIC_RUN_ID" in environ:
        return _read(TORCHRUN, environ)
    present = [source for source in (PALS, OPEN_MPI, PMI, TORCHRUN, HOROVODRUN) if source.rank in environ]
    if "SLURM_STEP_NUM_TASKS" in environ and not {"MPI_LOCALRANKID", "OMPI_COMM_WORLD_RANK", "PALS_RANKID"} & environ.keys():
        present.append(SLURM)
    if not present:
        return _from_mpi() if any(name in environ for name in RANK_ONLY) else Ranks()
    first, *others = present
    told = _told(first, environ)
    for other in others:
        if _told(other, environ) != told:
            raise UserError(
                f"{_shown(first, environ)} contradicts {_shown(other, environ)}; unset the variables that the launcher in use did not set"
            )
    # srun --mpi=pmi2 sets PMI's rank and size, and leaves it to Slurm's own variables to say which of them are on this node.
    return _read(next((source for source in present if _knows_node(source, environ)), first), environ)


def _told(source, environ):
    """(rank, size) as a launcher told them."""
    rank, size = _number(source.rank, environ), _number(source.size, environ)
    if not 0 <= rank < size:
        raise UserError(f"{_shown(source, environ)} cannot be: ranks count from 0 to size - 1")
    return rank, size


def _shown(source, environ):
    return f"{source.rank}={environ.get(source.rank, '')} {source.size}={environ.get(source.size, '')} ({source.name})"


def _knows_node(source, environ):
    return source is SLURM or any(name in environ for name in source.local_size)


def _read(source, environ):
    rank, size = _told(source, environ)
    local_size = _slurm_local_size(environ) if source is SLURM else _first(source.local_size, environ, size)
    local_rank = _first(source.local_rank, environ, rank % local_size if local_size > 0 else 0)
    if not 0 <= local_rank < local_size <= size:
        raise UserError(f"{_shown(source, environ)} with local rank {local_rank} of {local_size} cannot be: ranks count from 0 to size - 1")
    return Ranks(rank, size, local_rank, local_size, source.name)


def _first(names, environ, otherwise):
    return next((_number(name, environ) for name in names if name in environ), otherwise)


def _number(name, environ):
    try:
        return int(environ[name])
    except KeyError:
        raise UserError(f"{name} is not set although its launcher's other variables are; start all ranks with one launcher") from None
    except ValueError:
        raise UserError(f"{name} is {environ[name]!r}; it must be a whole number") from None


def _slurm_local_size(environ):
    """Tasks on this node from SLURM_STEP_TASKS_PER_NODE, written like `4(x2),3`."""
    name = "SLURM_STEP_TASKS_PER_NODE"
    tasks = []
    try:
        for part in environ.get(name, environ["SLURM_STEP_NUM_TASKS"]).split(","):
            count, _, times = part.rstrip(")").partition("(x")
            tasks += [int(count)] * int(times or 1)
        return tasks[int(environ.get("SLURM_NODEID", 0))]
    except (ValueError, IndexError):
        raise UserError(f"{name}={environ.get(name)} does not go with SLURM_NODEID={environ.get('SLURM_NODEID')}") from None


def _from_mpi():
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    return Ranks(world.rank, world.size, node.rank, node.size, "mpi4py")
