"""The ranks of a run meet: in MPI, where each learns whether another one has failed before, and at MASTER_ADDR for other libraries."""

import contextlib
import ipaddress
import os
import random
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypeVar

from common.errors import UserError
from common.ranks import mpi, slurm, watchdog
from common.ranks.launcher_variables import HOROVODRUN, TORCHRUN, Ranks
from common.ranks.watchdog import Late

Value = TypeVar("Value")

# The sources of ranks that do not meet in MPI.
WITHOUT_MPI = (TORCHRUN.name, HOROVODRUN.name, Ranks().source)
MASTER = ("MASTER_ADDR", "MASTER_PORT")
# It has the host_suffix of the machine file.
HOST_SUFFIX_VARIABLE = "TANDEM_HOST_SUFFIX"
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
LOOPBACK, LOOPBACK_INTERFACE = "127.0.0.1", "lo"
GIVEN_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORT = re.compile("[0-9]{1,5}")
FIRST_PORT, MAX_TRIES = 10_000, 100


class Failure(NamedTuple):
    """Why a rank does not train: its exit status, and its message."""

    rank: int
    host: str
    status: int
    error: str

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}: {self.error}"


class AnotherRankFailed(Exception):
    """Raised on the ranks that have not failed; its argument is the Failure of the first rank that has."""


def joined(ranks: Ranks) -> ModuleType:
    """Gives mpi4py's MPI after all ranks of the run have met in it; all call this.

    Raises UserError if MPI has a different number of ranks, and AnotherRankFailed where a rank has come with its Failure.
    """
    if (module := mpi.loaded()).Is_initialized():
        expect_size(ranks, module.COMM_WORLD.size, "MPI")
    elif failures := meet(ranks):
        raise AnotherRankFailed(failures[0])
    return module


def meet(ranks: Ranks, failure: Failure | None = None, on_late: Callable[[Late], object] | None = None) -> list[Failure]:
    """Waits for all ranks in MPI, with this rank's Failure if it has one, and gathers those with which ranks have come, by rank.

    `on_late` is called where not all come in time. Raises UserError if MPI has a different number of ranks.
    """
    with watchdog.joining(ranks.rank, lambda: "over MPI", on_late):
        world = mpi.initialized().COMM_WORLD
        expect_size(ranks, world.size, "MPI")
        return list(filter(None, world.allgather(failure)))


def expect_size(ranks: Ranks, size: int, library: str) -> None:
    """Raises UserError if a library has a different number of ranks than the launcher started: each would train alone."""
    if size != ranks.size:
        raise UserError(
            f"{ranks.source} started {ranks.size} ranks, {library} sees {size}; "
            "start with the mpiexec of the MPI that Horovod was built with and mpi4py loads"
            + (f". {slurm.advice(os.environ.get(slurm.MPI_TYPE, 'none'))}" if "SLURM_STEP_ID" in os.environ else "")
        )


def is_awaited(ranks: Ranks) -> bool:
    """Decides whether the ranks of the run meet in MPI, and this one has not come yet."""
    meets_elsewhere = ranks.size == 1 or ranks.source in WITHOUT_MPI or "MASTER_ADDR" in os.environ
    return not meets_elsewhere and mpi.problem() is None and not mpi.loaded().Is_initialized()


def master_address(hostname: str, on_one_node: bool) -> str:
    """Gives the address of rank 0: the loopback on one node, else its short host name and the machine file's host_suffix.

    The suffix selects the fast interface: `x3001c0s1b0n0` + `.hsn.cm.polaris.alcf.anl.gov` at ALCF, `jwb0001` + `i` at JSC.
    """
    return LOOPBACK if on_one_node else hostname.partition(".")[0] + os.environ.get(HOST_SUFFIX_VARIABLE, "")


def free_port() -> int:
    """Finds a free port, as held_port does."""
    with held_port() as port:
        return port


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """Holds a free port within a context, if possible below those that Linux assigns to any process: that could get it afterwards."""
    try:
        first_given = int(GIVEN_PORTS.read_text().split()[0])
    except OSError:
        first_given = 0
    below = range(FIRST_PORT, first_given)
    with socket.socket() as holder:
        # Runs side by side may have the same seed, and would try the same ports.
        for port in random.SystemRandom().sample(below, min(len(below), MAX_TRIES)):
            with contextlib.suppress(OSError):
                holder.bind(("", port))
                break
        else:
            holder.bind(("", 0))
        yield holder.getsockname()[1]


def agree_on_master(ranks: Ranks) -> None:
    """Sets MASTER_ADDR and MASTER_PORT on every rank, unless they are set.

    Rank 0 sends them to the other ranks over MPI; under srun without mpi4py they follow from its step. Raises UserError if only one of the
    two is set, if MPI has a different number of ranks, or for a network interface that is not here.
    """
    on_one_node = ranks.local_size == ranks.size
    if on_one_node and "MASTER_ADDR" not in os.environ:
        # By default Gloo resolves the host name, which can fail on a laptop.
        os.environ.setdefault(GLOO_INTERFACE, LOOPBACK_INTERFACE)
    expect_interface()
    # A batch system may set one to nothing.
    set_variables = [name for name in MASTER if os.environ.get(name)]
    if len(set_variables) == 1:
        (name,) = set_variables
        raise UserError(f"{name}={os.environ[name]} is set without the other; set both {' and '.join(MASTER)}, or neither")
    if set_variables:
        master = os.environ[MASTER[0]], os.environ[MASTER[1]]
    elif ranks.size == 1:
        master = LOOPBACK, free_port()
    elif (problem := mpi.problem()) and (rendezvous := slurm.meeting_place()):
        master = master_address(rendezvous[0], on_one_node), rendezvous[1]
    elif problem:
        raise UserError(f"{ranks.source} started ranks that meet over MPI, and mpi4py cannot be used ({problem}); start with torchrun")
    else:
        master = gathered((master_address(socket.gethostname(), on_one_node), free_port()), ranks)[0]
    os.environ |= dict(zip(MASTER, map(str, master), strict=True))
    expect_master()


def expect_interface() -> None:
    """Raises UserError where this node does not have the network interfaces that Gloo is to use."""
    value, names = os.environ.get(GLOO_INTERFACE), [name for _, name in socket.if_nameindex()]
    if value and not set(value.split(",")) <= set(names):
        raise UserError(f"{GLOO_INTERFACE} is {value}, and {socket.gethostname()} has {', '.join(names)}; name one of them, or unset it")


def expect_master() -> None:
    """Raises UserError if MASTER_ADDR is no address of a host, or MASTER_PORT no port."""
    address, port = (os.environ[name] for name in MASTER)
    if not (PORT.fullmatch(port) and 0 < int(port) < 2**16):
        raise UserError(f"MASTER_PORT is {port!r}; it must be a port, from 1 to 65535")
    try:
        socket.getaddrinfo(address, int(port))
    except (OSError, UnicodeError) as problem:
        reason, suffix = getattr(problem, "strerror", None) or str(problem), os.environ.get(HOST_SUFFIX_VARIABLE)
        remedy = "correct host_suffix in the machine file" if suffix and address.endswith(suffix) else "give that of rank 0"
        raise UserError(f"MASTER_ADDR is {address!r}, which is the address of no host here ({reason}); {remedy}") from None


def listener(on_one_node: bool) -> socket.socket:
    """Opens a socket that listens at MASTER_ADDR and MASTER_PORT on rank 0, for this node alone where all ranks are on it.

    Raises UserError where that is not possible.
    """
    address, port = (os.environ[name] for name in MASTER)
    resolved = socket.getaddrinfo(address, int(port), type=socket.SOCK_STREAM)[0]
    is_local = on_one_node and ipaddress.ip_address(resolved[4][0]).is_loopback
    try:
        if is_local:
            return socket.create_server(resolved[4][:2], family=resolved[0])
        has_both = socket.has_dualstack_ipv6()
        return socket.create_server(("", int(port)), family=socket.AF_INET6 if has_both else socket.AF_INET, dualstack_ipv6=has_both)
    except OSError as problem:
        reason = os.strerror(problem.errno) if problem.errno else str(problem)
        raise UserError(f"rank 0 cannot listen at {address}:{port} ({reason}); give a free MASTER_PORT") from None


def gathered(value: Value, ranks: Ranks) -> list[Value]:
    """Gathers the values of all ranks over MPI, by rank. Raises UserError if MPI has a different number of ranks."""
    if ranks.size == 1:
        return [value]
    world = joined(ranks).COMM_WORLD
    values = world.allgather(value)
    # MPI may make progress only inside MPI calls, and rank 0 next waits for the others outside MPI. A rank that has left the second
    # barrier knows that all ranks have left the first, so they have received the values and have no connection pending.
    world.Barrier()
    world.Barrier()
    return values
