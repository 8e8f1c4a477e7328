"""MASTER_ADDR and MASTER_PORT: where the ranks of a run find each other when the backend does not use MPI."""

import os
import socket

from common.errors import UserError

LOOPBACK = "127.0.0.1"


def master_address(hostname, suffix, on_one_node):
    """Address of rank 0 for the others: the loopback on one node, else its short name and the machine's suffix.

    Some machines give a node's fast interface another name: `x3001c0s1b0n0` + `.hsn.cm.polaris.alcf.anl.gov` at ALCF,
    `jwb0001` + `i` at JSC.
    """
    return LOOPBACK if on_one_node else hostname.split(".")[0] + suffix


def free_port():
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]


def agree_on_master(ranks, suffix=""):
    """Sets MASTER_ADDR and MASTER_PORT on every rank: as the launcher gave them, else as rank 0 tells over MPI.

    Raises UserError where there is neither, or only one of the two is given.
    """
    on_one_node = ranks.local_size == ranks.size
    if on_one_node and "MASTER_ADDR" not in os.environ:
        # Without this, Gloo asks for the address of the host's own name, which a laptop may not be able to resolve.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    given = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name in os.environ]
    if len(given) == 1:
        raise UserError(f"{given[0]}={os.environ[given[0]]} is set alone; set both MASTER_ADDR and MASTER_PORT, or neither")
    if given:
        return
    if ranks.size == 1:
        master = LOOPBACK, free_port()
    else:
        master = _broadcast((master_address(socket.gethostname(), suffix, on_one_node), free_port()), ranks)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = master[0], str(master[1])


def expect_size(ranks, size, library):
    """Raises UserError where a library sees another number of ranks than the launcher started: each would train alone."""
    if size != ranks.size:
        raise UserError(
            f"{ranks.source} started {ranks.size} ranks, {library} sees {size}; "
            "start with the mpiexec of the MPI that Horovod was built with and mpi4py finds (srun: --mpi=pmi2)"
        )


def _broadcast(master, ranks):
    from mpi4py import MPI

    expect_size(ranks, MPI.COMM_WORLD.size, "MPI")
    master = MPI.COMM_WORLD.bcast(master)
    # MPI may connect and send only while a rank calls it, and rank 0 goes on to wait for the others outside of MPI. A rank that leaves the
    # second barrier knows that all have left the first: they have got this, and nothing of theirs is waiting for a connection.
    MPI.COMM_WORLD.Barrier()
    MPI.COMM_WORLD.Barrier()
    return master
