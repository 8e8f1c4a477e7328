"""The bytes and the kind of a call of each function, as a C expression over its arguments (functions: interposer/load.h).

Parameters have the names of the standards, which all MPIs use. Bytes are those that this rank sends or posts to receive; for a
scatter, its own part. In-place calls and the roots of inter-communicators do not set all arguments: only those that the standard
defines as significant are read (MPI 4.1, chapters 3, 6 and 12). Persistent initialization (`…_init`) moves nothing.
"""

import re
from collections.abc import Sequence

REDUCTIONS = {"Reduce", "Allreduce", "Scan", "Exscan", "Reduce_scatter", "Reduce_scatter_block"}
COLLECTIVES = REDUCTIONS | {"Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall", "Alltoallv"}
COMPLETION = re.compile(
    r"(Wait|Test)(all|any|some)?|(P|Mp|Imp|Ip)robe|Win_(fence|wait|test|complete|unlock(_all)?|flush(_local)?(_all)?)|Request_get_status"
)

SENT = "sendbuf == MPI_IN_PLACE"
SCATTERED = "recvbuf == MPI_IN_PLACE"
OWN = "trace_ask(PMPI(Comm_rank), comm)"
SENT_TYPE = f"({SENT} ? recvtype : sendtype)"
SENT_OR_RECEIVED = (f"({SENT} ? (int64_t)recvcount : (int64_t)sendcount)", SENT_TYPE)
SENT_OR_OWN = (f"({SENT} ? (int64_t)recvcounts[{OWN}] : (int64_t)sendcount)", SENT_TYPE)
SCATTERED_TYPE = f"({SCATTERED} ? sendtype : recvtype)"
# Count, type and factor of the collectives without plain `count` and `datatype`.
ELEMENTS: dict[str, tuple[str, ...]] = {
    "Gather": SENT_OR_RECEIVED,
    "Allgather": SENT_OR_RECEIVED,
    "Gatherv": SENT_OR_OWN,
    "Allgatherv": SENT_OR_OWN,
    "Scatter": (f"({SCATTERED} ? (int64_t)sendcount : (int64_t)recvcount)", SCATTERED_TYPE),
    "Scatterv": (f"({SCATTERED} ? (int64_t)sendcounts[{OWN}] : (int64_t)recvcount)", SCATTERED_TYPE),
    "Alltoall": (*SENT_OR_RECEIVED, "trace_num_peers(comm)"),
    "Alltoallv": (f"TRACE_SUM(({SENT} ? recvcounts : sendcounts)[peer], trace_num_peers(comm))", SENT_TYPE),
    "Reduce_scatter": ("TRACE_SUM(recvcounts[peer], trace_ask(PMPI(Comm_size), comm))", "datatype"),
    "Reduce_scatter_block": ("recvcount", "datatype", "trace_ask(PMPI(Comm_size), comm)"),
}
ALLTOALLW = (
    f"TRACE_SUM({SENT} ? trace_bytes(recvcounts[peer], recvtypes[peer]) : trace_bytes(sendcounts[peer], sendtypes[peer]), "
    "trace_num_peers(comm))"
)


def blocking_form(name: str) -> str:
    """Returns the operation of a function in the name of its blocking form: MPI_Iallreduce_c is an Allreduce."""
    operation = re.sub("^MPIX?_", "", name).removesuffix("_c")
    nonblocking = re.fullmatch(r"I([a-z]\w+)", operation)
    return nonblocking[1].capitalize() if nonblocking and nonblocking[1] not in {"probe", "mprobe"} else operation


def load_of(name: str, parameters: Sequence[str]) -> str:
    """Determines what a function moves, from its name and the names of its parameters: an expression of type struct trace_load."""
    if name.startswith("nccl"):
        return "trace_nccl(count, datatype)" if "datatype" in parameters else "trace_moves(0, TRACE_NCCL)"
    operation = blocking_form(name)
    without_bytes = {
        "OTHER": operation.endswith("_init"),
        "COMPLETION": COMPLETION.fullmatch(operation),
        "CONTROL": operation == "Barrier",
    }
    if kind := next((kind for kind, is_kind in without_bytes.items() if is_kind), None):
        return f"trace_moves(0, TRACE_{kind})"
    if operation in COLLECTIVES:
        return _collective(operation, parameters)
    size_bytes = ALLTOALLW if operation == "Alltoallw" else _bytes_of(operation, parameters)
    if operation.startswith("File_"):
        return f"trace_moves({size_bytes or 0}, TRACE_IO)"
    is_payload = size_bytes is not None or operation.startswith("Neighbor_")
    return f"trace_moves({size_bytes or 0}, {'TRACE_PAYLOAD' if is_payload else 'TRACE_OTHER'})"


def _collective(operation: str, parameters: Sequence[str]) -> str:
    count, datatype, *factor = ELEMENTS.get(operation, ("count", _datatype(parameters)))
    arguments = f"{count}, {datatype}, {factor[0] if factor else 1}"
    load = f"trace_reduces({arguments}, op)" if operation in REDUCTIONS else f"trace_spreads({arguments})"
    # MPI_ROOT and MPI_PROC_NULL are negative everywhere.
    return f"(root < 0 ? trace_moves(0, TRACE_PAYLOAD) : {load})" if "root" in parameters else load


def _datatype(parameters: Sequence[str]) -> str:
    """Returns the parameter's name in the standard, or `type`, as Open MPI's headers have it in places."""
    return "datatype" if "datatype" in parameters else "type"


def _bytes_of(operation: str, parameters: Sequence[str]) -> str | None:
    """Returns an expression for the bytes of a call other than a collective; None for a call that moves no data."""
    has_all = set(parameters).issuperset
    datatype = _datatype(parameters)
    if operation in {"Fetch_and_op", "Compare_and_swap"}:
        return f"trace_bytes(1, {datatype})"
    for count, counted_type in (("origin_count", "origin_datatype"), ("sendcount", "sendtype"), ("count", datatype)):
        if has_all({count, counted_type}) and any(handle in parameters for handle in ("comm", "message", "win", "fh")):
            return f"trace_bytes({count}, {counted_type})"
    return None
