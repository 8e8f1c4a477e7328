"""The bytes and the kind of each MPI function, as a C expression over its arguments (functions: interposer/load.h).

Parameters have the names of the MPI standard, which all MPIs use. Bytes are those that this rank sends or posts to receive; for a
scatter, its own part. In-place calls and the roots of inter-communicators do not set all arguments: only those that the standard
defines as significant are read (MPI 4.1, chapters 3, 6 and 12). Persistent initialization (`…_init`) moves nothing.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

NOTHING = "TRACE_NOTHING"

REDUCTIONS = {"Reduce", "Allreduce", "Scan", "Exscan", "Reduce_scatter", "Reduce_scatter_block"}
COLLECTIVES = REDUCTIONS | {
    "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall", "Alltoallv", "Alltoallw",
}  # fmt: skip
COMPLETION = re.compile(
    r"(Wait|Test)(all|any|some)?|(P|Mp|Imp|Ip)robe|Win_(fence|wait|test|complete|unlock(_all)?|flush(_local)?(_all)?)|Request_get_status"
)

SENT = "sendbuf == MPI_IN_PLACE"
# Count, type and factor of the collectives without plain `count` and `datatype`.
SENT_OR_RECEIVED = (f"({SENT} ? (int64_t)recvcount : (int64_t)sendcount)", f"({SENT} ? recvtype : sendtype)")
SENT_OR_OWN = (f"({SENT} ? (int64_t)recvcounts[trace_ask(PMPI(Comm_rank), comm)] : (int64_t)sendcount)", f"({SENT} ? recvtype : sendtype)")
SCATTERED = "recvbuf == MPI_IN_PLACE"
ELEMENTS: dict[str, tuple[str, ...]] = {
    "Gather": SENT_OR_RECEIVED,
    "Allgather": SENT_OR_RECEIVED,
    "Gatherv": SENT_OR_OWN,
    "Allgatherv": SENT_OR_OWN,
    "Scatter": (f"({SCATTERED} ? (int64_t)sendcount : (int64_t)recvcount)", f"({SCATTERED} ? sendtype : recvtype)"),
    "Scatterv": (
        f"({SCATTERED} ? (int64_t)sendcounts[trace_ask(PMPI(Comm_rank), comm)] : (int64_t)recvcount)",
        f"({SCATTERED} ? sendtype : recvtype)",
    ),
    "Alltoall": (*SENT_OR_RECEIVED, "trace_num_peers(comm)"),
    "Alltoallv": (
        f"TRACE_SUM(({SENT} ? recvcounts : sendcounts)[peer], trace_num_peers(comm))",
        SENT_OR_RECEIVED[1],
    ),
    "Reduce_scatter": ("TRACE_SUM(recvcounts[peer], trace_ask(PMPI(Comm_size), comm))", "datatype"),
    "Reduce_scatter_block": ("recvcount", "datatype", "trace_ask(PMPI(Comm_size), comm)"),
}
ALLTOALLW = (
    f"TRACE_SUM({SENT} ? trace_bytes(recvcounts[peer], recvtypes[peer]) : trace_bytes(sendcounts[peer], sendtypes[peer]), "
    "trace_num_peers(comm))"
)


class Load(NamedTuple):
    """A C expression of type struct trace_load, the kind in the table of routines, and whether a barrier may precede the call."""

    expression: str
    kind: str
    is_blocking_collective: bool = False


class Operation(NamedTuple):
    """The operation of a function, in the name of its blocking form, and whether it is nonblocking."""

    name: str
    is_nonblocking: bool


def operation_of(name: str) -> Operation:
    """Finds the operation of a function: MPI_Iallreduce_c is the nonblocking Allreduce."""
    operation = re.sub("^MPIX?_", "", name).removesuffix("_c")
    nonblocking = re.fullmatch(r"I([a-z]\w+)", operation)
    if nonblocking and nonblocking[1] not in {"probe", "mprobe"}:
        return Operation(nonblocking[1].capitalize(), True)
    return Operation(operation, False)


def load_of(name: str, parameters: Sequence[str]) -> Load:
    """Determines what a function moves, from its name and the names of its parameters."""
    operation, is_nonblocking = operation_of(name)
    if operation.endswith("_init"):
        return Load(NOTHING, "TRACE_OTHER")
    if COMPLETION.fullmatch(operation):
        return Load("trace_moves(0, TRACE_COMPLETION)", "TRACE_COMPLETION")
    if operation == "Barrier":
        return Load("trace_moves(0, TRACE_CONTROL)", "TRACE_CONTROL")
    if operation in COLLECTIVES or operation.startswith("Neighbor_"):
        return Load(_collective(operation, parameters), "TRACE_PAYLOAD", not is_nonblocking)
    bytes_moved = _bytes_moved(operation, parameters)
    if operation.startswith("File_"):
        return Load(f"trace_moves({bytes_moved or 0}, TRACE_IO)", "TRACE_IO")
    return Load(NOTHING, "TRACE_OTHER") if bytes_moved is None else Load(f"trace_moves({bytes_moved}, TRACE_PAYLOAD)", "TRACE_PAYLOAD")


def _collective(operation: str, parameters: Sequence[str]) -> str:
    if operation == "Alltoallw":
        return f"trace_moves({ALLTOALLW}, TRACE_PAYLOAD)"
    if operation.startswith("Neighbor_"):
        return f"trace_moves({_bytes_moved(operation, parameters) or 0}, TRACE_PAYLOAD)"
    count, datatype, *factor = ELEMENTS.get(operation, ("count", _datatype(parameters)))
    arguments = f"{count}, {datatype}, {factor[0] if factor else 1}"
    load = f"trace_reduces({arguments}, op)" if operation in REDUCTIONS else f"trace_spreads({arguments})"
    # MPI_ROOT and MPI_PROC_NULL are negative everywhere.
    return f"(root < 0 ? trace_moves(0, TRACE_PAYLOAD) : {load})" if "root" in parameters else load


def _datatype(parameters: Sequence[str]) -> str:
    """Returns the parameter's name in the standard, or `type`, as Open MPI's headers have it in places."""
    return "datatype" if "datatype" in parameters else "type"


def _bytes_moved(operation: str, parameters: Sequence[str]) -> str | None:
    """Returns an expression for the bytes of a call other than a collective; None for a call that moves no data."""
    has_all = set(parameters).issuperset
    datatype = _datatype(parameters)
    if operation in {"Fetch_and_op", "Compare_and_swap"}:
        return f"trace_bytes(1, {datatype})"
    for count, counted_type in (("origin_count", "origin_datatype"), ("sendcount", "sendtype"), ("count", datatype)):
        if has_all({count, counted_type}) and any(handle in parameters for handle in ("comm", "message", "win", "fh")):
            return f"trace_bytes({count}, {counted_type})"
    return None
