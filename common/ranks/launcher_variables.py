"""Rank and world size of this process, from the environment variables of the launcher, what ranks add up, and the name of the node."""

import json
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from common.errors import UserError
from common.ranks import mpi


class Ranks(NamedTuple):
    """Global rank and world size, local rank and size on the node, and the launcher they come from."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    source: str = "alone"


class Summing(Protocol):
    """A Trainer, or another object by which the ranks of a run add up float64 values."""

    @property
    def ranks(self) -> Ranks: ...

    def sum(self, values: np.ndarray, /) -> np.ndarray: ...


def by_rank(run: Summing, value: float) -> np.ndarray:
    """All-gathers the value of each rank into an array. All ranks call this."""
    values = np.zeros(run.ranks.size)
    values[run.ranks.rank] = value
    return run.sum(values)


def values_by_rank(run: Summing, value: Any) -> list[Any]:
    """All-gathers a value of each rank that JSON can express. All ranks call this."""
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = by_rank(run, len(text)).astype(int)
    texts = np.zeros((run.ranks.size, sizes.max()))
    texts[run.ranks.rank, : len(text)] = text
    texts = run.sum(texts.ravel()).reshape(texts.shape).astype(np.uint8)
    return [json.loads(bytes(of_rank[:size])) for of_rank, size in zip(texts, sizes, strict=True)]


class Source(NamedTuple):
    """The variables of a launcher. Local rank and size are derived from rank and size if their variables are absent."""

    name: str
    rank: str
    size: str
    local_rank: tuple[str, ...] = ()
    local_size: tuple[str, ...] = ()
    # The variable with the number of nodes, over which the ranks are spread evenly, where none has the local size.
    num_nodes: str = ""


TORCHRUN = Source("torchrun", "RANK", "WORLD_SIZE", ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",))
PALS = Source("PALS", "PALS_RANKID", "PMI_SIZE", ("PALS_LOCAL_RANKID",), ("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"))
OPEN_MPI = Source(
    "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("OMPI_COMM_WORLD_LOCAL_RANK",), ("OMPI_COMM_WORLD_LOCAL_SIZE",)
)
PMI = Source("MPICH/Intel PMI", "PMI_RANK", "PMI_SIZE", ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"))
HOROVODRUN = Source("horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE", ("HOROVOD_LOCAL_RANK",), ("HOROVOD_LOCAL_SIZE",))
SLURM = Source("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_LOCALID",), ())
FLUX = Source("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", ("FLUX_TASK_LOCAL_ID",), (), "FLUX_JOB_NNODES")
MVAPICH = Source("MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", ("MV2_COMM_WORLD_LOCAL_RANK",), ("MV2_COMM_WORLD_LOCAL_SIZE",))
# Those that a rank's own launcher sets, and those of a batch system, which may have started that launcher.
LAUNCHERS = (PALS, OPEN_MPI, PMI, MVAPICH, TORCHRUN, HOROVODRUN)
BATCH_SYSTEMS = (SLURM, FLUX)
# Set for each rank of a launcher that a batch system has started on its nodes.
INNER = {"MPI_LOCALRANKID", OPEN_MPI.rank, PALS.rank}

# Variables of launchers that set the rank but not the world size, which MPI then provides.
ALPS_RANK = "ALPS_APP_PE"
RANK_ONLY = (ALPS_RANK, "PMIX_RANK", "MPT_MPI_RANK", PALS.rank)
# Slurm's variable with the tasks of a step on each node, such as 4(x2),3.
SLURM_TASKS = "SLURM_STEP_TASKS_PER_NODE"

# Set for its ranks by what plans them: the most that are on a node.
RANKS_PER_NODE = "TANDEM_RANKS_PER_NODE"

# Of a rank and of a number of ranks.
MAX_DIGITS = 7
NUMBER = re.compile(rf"-?[0-9]{{1,{MAX_DIGITS}}}")

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# The arguments always reach a rank. The command that a dry run prints lacks this one, since its user has set no variable.
EXPECT_VARIABLES = "--expect-variables="


def from_environment(environ: Mapping[str, str] | None = None) -> Ranks:
    """Reads the Ranks of this process from `environ` (default: os.environ).

    Launchers may be nested: torchrun's workers inherit the variables of the srun or mpiexec around it, and Hydra and Open MPI
    start one daemon per node through srun. The inner launcher then takes precedence. Raises UserError, with the
    variables, if two launchers contradict each other, and where one says that there are other ranks but not which this one is.
    """
    environ = os.environ if environ is None else environ
    if "TORCHELASTIC_RUN_ID" in environ:
        return _read(TORCHRUN, environ)
    # With PMIx, PALS leaves the size out or empty.
    without_size = (PALS, PMI) if PALS.rank in environ and not environ.get(PALS.size) else ()
    present = [source for source in LAUNCHERS if source.rank in environ and source not in without_size]
    if not INNER & environ.keys():
        # The shell of a job of Slurm has a task too, and no step.
        present += [source for source in BATCH_SYSTEMS if source.size in environ or (source is not SLURM and source.rank in environ)]
    if not present:
        if any(name in environ for name in RANK_ONLY):
            return _from_mpi()
        _expect_alone(environ)
        return Ranks()
    first = present[0]
    for source in present[1:]:
        if _rank_and_size(source, environ) != _rank_and_size(first, environ):
            raise UserError(
                f"{_format(first, environ)} contradicts {_format(source, environ)}; "
                "unset the variables that the launcher in use did not set"
            )
    # srun --mpi=pmi2 sets PMI's rank and size but not the local ones, which are in Slurm's own variables.
    with_local_size = [
        source for source in present if source is SLURM or any(name in environ for name in (*source.local_size, source.num_nodes))
    ]
    return _read([*with_local_size, first][0], environ)


def _expect_alone(environ: Mapping[str, str]) -> None:
    """Raises UserError where a variable says that there are several ranks, of which this would be one that trains alone."""
    for source in LAUNCHERS:
        if NUMBER.fullmatch(size := environ.get(source.size, "")) and int(size) > 1:
            raise UserError(
                f"{source.size}={size} ({source.name}) says that there are {size} ranks, and {source.rank} is not set; "
                f"start all ranks with one launcher, or unset {source.size}"
            )
    if environ.get(SLURM.rank, "").strip("0"):
        task = f"{SLURM.rank}={environ[SLURM.rank]} ({SLURM.name})"
        raise UserError(f"{task} says that there are other ranks, and {SLURM.size} is not set; start all ranks with srun")


def _rank_and_size(source: Source, environ: Mapping[str, str]) -> tuple[int, int]:
    rank, size = _number(source.rank, environ), _number(source.size, environ)
    if not 0 <= rank < size:
        raise UserError(f"{_format(source, environ)} is invalid: ranks must be from 0 to size - 1")
    return rank, size


def _format(source: Source, environ: Mapping[str, str]) -> str:
    return f"{source.rank}={environ.get(source.rank, '')} {source.size}={environ.get(source.size, '')} ({source.name})"


def _read(source: Source, environ: Mapping[str, str]) -> Ranks:
    rank, size = _rank_and_size(source, environ)
    num_nodes = max(1, _number(source.num_nodes, environ)) if source.num_nodes in environ else 1
    local_size = _slurm_local_size(environ, size) if source is SLURM else _first(source.local_size, environ, -(-size // num_nodes))
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


def _slurm_local_size(environ: Mapping[str, str], size: int) -> int:
    """Counts the tasks of the step on this node."""
    try:
        return _tasks(environ.get(SLURM_TASKS, str(size)))[int(environ.get("SLURM_NODEID", 0))]
    except (ValueError, IndexError):
        raise UserError(f"{SLURM_TASKS}={environ.get(SLURM_TASKS)} contradicts SLURM_NODEID={environ.get('SLURM_NODEID')}") from None


def _tasks(text: str) -> list[int]:
    """Expands a list such as `4(x2),3` to the tasks of each node; empty where it is none."""
    tasks: list[int] = []
    for tasks_of_nodes in text.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:\(x(\d{1,6})\))?", tasks_of_nodes)
        if not match:
            return []
        tasks += [int(match[1])] * int(match[2] or 1)
    return tasks


def _from_mpi() -> Ranks:
    world = mpi.initialized().COMM_WORLD
    node = world.Split_type(mpi.loaded().COMM_TYPE_SHARED)
    return Ranks(world.rank, world.size, node.rank, node.size, "mpi4py")


def expect_planned(ranks: Ranks) -> None:
    """Raises UserError where more ranks than planned are on this node, as where their launcher has not been given the others."""
    if RANKS_PER_NODE in os.environ and ranks.local_size > (planned := _number(RANKS_PER_NODE, os.environ)):
        raise UserError(
            f"{ranks.local_size} of {ranks.size} ranks are on {socket.gethostname()}, and {planned} on a node are planned: {ranks.source} "
            "has too few nodes; list them with --hosts FILE, or run inside an allocation that has as many"
        )


def expect_variables_argument(names: Iterable[str]) -> str:
    """Formats the argument of a rank that expects these variables."""
    return EXPECT_VARIABLES + ",".join(names)


def expect_variables(argv: list[str]) -> None:
    """Takes that argument out of a rank's arguments. Raises UserError where a variable is not set."""
    expected = [name for word in argv if word.startswith(EXPECT_VARIABLES) for name in word.removeprefix(EXPECT_VARIABLES).split(",")]
    argv[:] = [word for word in argv if not word.startswith(EXPECT_VARIABLES)]
    if missing := [name for name in expected if name not in os.environ]:
        raise UserError(
            f"{', '.join(missing)}, which the matrix has set, did not reach this rank; let the launcher, its arguments and the container "
            "pass variables on (Slurm: --export=ALL; Podman: --env-host)"
        )


def node_name() -> str:
    """Reads the name of this boot of the node's kernel, the same in all its containers; the host name where Linux does not show it."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()
