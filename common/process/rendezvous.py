"""MASTER_ADDR and MASTER_PORT: the rendezvous of ranks for libraries that do not use MPI."""

import contextlib
import os
import random
import socket
from pathlib import Path

from common.errors import UserError
from common.process import slurm

MASTER = ("MASTER_ADDR", "MASTER_PORT")
LOOPBACK, LOOPBACK_INTERFACE = "127.0.0.1", "lo"
GIVEN_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST_PORT, MAX_TRIES = 10_000, 100


def master_address(hostname, suffix, on_one_node):
    """Address of rank 0: the loopback on one node, else its short host name and the machine's suffix.

    The suffix selects the fast interface: `x3001c0s1b0n0` + `.hsn.cm.polaris.alcf.anl.gov` at ALCF, `jwb0001` + `i` at JSC.
    """
    return LOOPBACK if on_one_node else hostname.split(".")[0] + suffix


def free_port():
    """Returns a port that is free, if possible below those that Linux gives to whoever asks, who might get it before the master listens."""
    try:
        first_given = int(GIVEN_PORTS.read_text().split()[0])
    except OSError:
        first_given = 0
    below = range(FIRST_PORT, first_given)
    for port in random.sample(below, min(len(below), MAX_TRIES)):
        with contextlib.suppress(OSError):
            return _bound(port)
    return _bound(0)


def _bound(port):
    """Returns the port that a socket gets which asks for this one, or for any (0). Raises OSError where it is in use."""
    with socket.socket() as listener:
        listener.bind(("", port))
        return listener.getsockname()[1]


def agree_on_master(ranks, suffix=""):
    """Sets MASTER_ADDR and MASTER_PORT on every rank, unless they are set; rank 0 tells the others over MPI, under srun without mpi4py
    they follow from its step.

    Raises UserError if only one of the two is set, or if MPI has a different number of ranks.
    """
    on_one_node = ranks.local_size == ranks.size
    if on_one_node and "MASTER_ADDR" not in os.environ:
        # By default Gloo resolves the host name, which can fail on a laptop.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK_INTERFACE)
    set_variables = [name for name in MASTER if name in os.environ]
    if len(set_variables) == 1:
        (name,) = set_variables
        raise UserError(f"{name}={os.environ[name]} is set without the other; set both {' and '.join(MASTER)}, or neither")
    if set_variables:
        return
    if ranks.size == 1:
        master = LOOPBACK, free_port()
    elif (problem := mpi_problem()) and (place := slurm.meeting_place()):
        master = master_address(place[0], suffix, on_one_node), place[1]
    elif problem:
        raise UserError(f"{ranks.source} started ranks that meet over MPI, and mpi4py cannot be used ({problem}); start with torchrun")
    else:
        master = gathered((master_address(socket.gethostname(), suffix, on_one_node), free_port()), ranks)[0]
    os.environ |= dict(zip(MASTER, map(str, master), strict=True))


def mpi_problem():
    """Initializes MPI. Why mpi4py cannot, in words; None if it can."""
    try:
        import mpi4py.MPI  # noqa: F401
    except (ImportError, RuntimeError) as problem:
        return str(problem)
    return None


def expect_size(ranks, size, library):
    """Raises UserError if a library has a different number of ranks than the launcher started: each would train alone."""
    if size != ranks.size:
        raise UserError(
            f"{ranks.source} started {ranks.size} ranks, {library} sees {size}; "
            "start with the mpiexec of the MPI that Horovod was built with and mpi4py loads"
            + (f". {slurm.advice(os.environ.get(slurm.MPI_TYPE, 'none'))}" if "SLURM_STEP_ID" in os.environ else "")
        )


def gathered(value, ranks):
    """Returns the values of all ranks by rank, over MPI. Raises UserError if MPI has a different number of ranks."""
    if ranks.size == 1:
        return [value]
    from mpi4py import MPI

    expect_size(ranks, MPI.COMM_WORLD.size, "MPI")
    values = MPI.COMM_WORLD.allgather(value)
    # MPI may make progress only inside MPI calls, and rank 0 next waits for the others outside MPI. A rank that has left the second
    # barrier knows that all ranks have left the first, so they have received the values and have no connection pending.
    MPI.COMM_WORLD.Barrier()
    MPI.COMM_WORLD.Barrier()
    return values
