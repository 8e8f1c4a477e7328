"""Builds the MPI interposer, libtandemtrace.so, for the environment's MPI: python -m launch.trace.build.

Its wrappers in C are generated: one for each function of an mpi.h, but those of lifetime.c, and for each of NCCL's here. A wrapper knows
the bytes and the kind of its call by a C expression over the arguments (functions: interposer/load.h). Parameters have the names of the
standards, which all MPIs use. Bytes are those that this rank sends or posts to receive; for a scatter, its own part. In-place calls and
the roots of inter-communicators do not set all arguments: only those that the standard defines as significant are read (MPI 4.1, chapters
3, 6 and 12). Persistent initialization (`…_init`) moves nothing.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from common import command_line
from common.declarations import SHELL_PYTHON
from common.errors import UserError

SOURCES = Path(__file__).resolve().parent / "interposer"
NAME = "libtandemtrace.so"
FLAGS = (
    "-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-ftls-model=initial-exec",
    "-Wall", "-Wextra", "-Wno-deprecated-declarations", "-Wno-unused-parameter", "-Wno-format-truncation",
    # Does not link MPI: the interposer must load where there is none.
    "-Wl,--as-needed", "-Wl,--no-undefined",
)  # fmt: skip

# Prints the path of the MPI library with which programs of this mpicc run.
WHICH_MPI = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
int main(void)
{
    Dl_info where;
    int (*volatile used)(int *, int *) = MPI_Get_version;
    void *symbol = dlsym(RTLD_DEFAULT, "MPI_Get_version");
    return used && symbol && dladdr(symbol, &where) ? puts(where.dli_fname) < 0 : 1;
}
"""

# They begin, end or switch recording.
HAND_WRITTEN = ("MPI_Init", "MPI_Init_thread", "MPI_Finalize", "MPI_Abort", "MPI_Pcontrol")
# In the headers of MPICH and Open MPI each parameter has a name, and functions are passed by the names of their types.
FUNCTION = re.compile(r"(?:extern )?(?!typedef)((?:\w+ )+(?:\* ?)*)((?:MPIX?_|nccl)\w+) ?\(([^()]*)\)")
STRUCTURE = re.compile(r"extern (struct \w+) (\w+)")
PARAMETER = re.compile(r"(\w+) ?(?:\[\d*\] ?)*(?:,|$)")

# NVIDIA, NCCL user guide, "NCCL API", with its types as plain C types, so that building needs no NCCL.
NCCL_TYPES = "typedef struct { char internal[128]; } ncclUniqueId;\n"
NCCL = """
int ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, int datatype, int op, void *comm, void *stream);
int ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t count, int datatype, int op, void *comm, void *stream);
int ncclAllGather(const void *sendbuff, void *recvbuff, size_t count, int datatype, void *comm, void *stream);
int ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, int datatype, int root, void *comm, void *stream);
int ncclBcast(void *buff, size_t count, int datatype, int root, void *comm, void *stream);
int ncclReduce(const void *sendbuff, void *recvbuff, size_t count, int datatype, int op, int root, void *comm, void *stream);
int ncclSend(const void *sendbuff, size_t count, int datatype, int peer, void *comm, void *stream);
int ncclRecv(void *recvbuff, size_t count, int datatype, int peer, void *comm, void *stream);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclCommInitRank(void **comm, int nranks, ncclUniqueId id, int rank);
int ncclCommInitRankConfig(void **comm, int nranks, ncclUniqueId id, int rank, void *config);
"""

# Local names must differ from those of parameters. Parentheses prevent the expansion of a macro of the same name.
WRAPPER = """
TRACE_EXPORT {returns}({name})({parameters})
{{
    static void *_Atomic trace_slot;
    __typeof__({name}) *trace_function = trace_find(&trace_slot, "{real_name}");
{before}    int64_t trace_start = trace_enter();
    {returns}trace_result = trace_function({arguments});
    int64_t trace_duration = trace_leave(trace_start);
    if (trace_start)
        trace_count({number}, trace_duration, {load});
    return trace_result;
}}
"""

REDUCTIONS = {"Reduce", "Allreduce", "Scan", "Exscan", "Reduce_scatter", "Reduce_scatter_block"}
COMPLETION = re.compile(
    r"(Wait|Test)(all|any|some)?|(P|Mp|Imp|Ip)robe|Win_(fence|wait|test|complete|unlock(_all)?|flush(_local)?(_all)?)|Request_get_status"
)
SENT = "sendbuf == MPI_IN_PLACE"
SCATTERED = "recvbuf == MPI_IN_PLACE"
OWN = "trace_ask(PMPI(Comm_rank), comm)"
SENT_TYPE = f"({SENT} ? recvtype : sendtype)"
SENT_OR_RECEIVED = f"({SENT} ? (int64_t)recvcount : (int64_t)sendcount), {SENT_TYPE}"
SENT_OR_OWN = f"({SENT} ? (int64_t)recvcounts[{OWN}] : (int64_t)sendcount), {SENT_TYPE}, 1"
SCATTERED_TYPE = f"({SCATTERED} ? sendtype : recvtype)"
# Count, type and factor of the collectives that are no reductions.
SPREAD = {
    "Bcast": "count, datatype, 1",
    "Gather": f"{SENT_OR_RECEIVED}, 1",
    "Allgather": f"{SENT_OR_RECEIVED}, 1",
    "Gatherv": SENT_OR_OWN,
    "Allgatherv": SENT_OR_OWN,
    "Scatter": f"({SCATTERED} ? (int64_t)sendcount : (int64_t)recvcount), {SCATTERED_TYPE}, 1",
    "Scatterv": f"({SCATTERED} ? (int64_t)sendcounts[{OWN}] : (int64_t)recvcount), {SCATTERED_TYPE}, 1",
    "Alltoall": f"{SENT_OR_RECEIVED}, trace_num_peers(comm)",
    "Alltoallv": f"TRACE_SUM(({SENT} ? recvcounts : sendcounts)[peer], trace_num_peers(comm)), {SENT_TYPE}, 1",
}
# The counts of the reductions without plain `count`.
REDUCED = {
    "Reduce_scatter": "TRACE_SUM(recvcounts[peer], trace_ask(PMPI(Comm_size), comm))",
    "Reduce_scatter_block": "(int64_t)recvcount * trace_ask(PMPI(Comm_size), comm)",
}
# Count and type of other calls that move data.
COUNTED = (("origin_count", "origin_datatype"), ("sendcount", "sendtype"), ("count", "datatype"))


def default_library() -> Path:
    """Returns the path of the environment's interposer."""
    return Path(sys.prefix) / "lib" / NAME


def installed() -> Path:
    """Returns the path of the environment's interposer. Raises UserError where it is missing: compute nodes may lack a compiler."""
    library = default_library()
    if not library.exists():
        raise UserError(f"{library} is not built; run {SHELL_PYTHON} -m launch.trace.build on a node with a compiler")
    return library


def mpicc_of_environment(choices: str | None = None) -> str:
    """Returns the mpicc that was chosen for launch/setup.sh, or the environment's own."""
    path = Path(sys.prefix) / "tandem-choices"
    text = path.read_text() if choices is None and path.exists() else choices or ""
    mpicc = dict(line.split("=", 1) for line in text.splitlines() if "=" in line).get("TANDEM_MPICC")
    return mpicc or str(Path(sys.prefix) / "bin" / "mpicc")


def mpi_library(mpicc: str) -> str:
    """Returns the path of the MPI library; empty where an MPI program cannot run on this node."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "which_mpi.c"), Path(folder, "which_mpi")
        source.write_text(WHICH_MPI)
        subprocess.run([mpicc, source, "-o", program, "-ldl"], capture_output=True, check=False)
        try:
            return subprocess.run([program], capture_output=True, text=True, check=False).stdout.strip()
        except OSError:
            return ""


def build(library: str | Path | None = None, mpicc: str | None = None) -> Path:
    """Builds the interposer for an MPI and returns its path. Raises UserError where it cannot be compiled."""
    library = Path(library or default_library())
    mpicc = mpicc or mpicc_of_environment()
    mpi_h = preprocessed(mpicc)
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trace-", dir=library.parent) as folder:
        generated = Path(folder)
        (generated / "generated.h").write_text(generated_h(mpi_h))
        (generated / "wrappers.c").write_text(wrappers_c(mpi_h))
        sources = [*sorted(SOURCES.glob("*.c")), generated / "wrappers.c"]
        built = generated / NAME
        defined = f'-DTRACE_LIBMPI="{mpi_library(mpicc)}"'
        command = [mpicc, *FLAGS, defined, f"-I{generated}", f"-I{SOURCES}", "-o", built, *sources, "-ldl"]
        process = subprocess.run([str(argument) for argument in command], capture_output=True, text=True, check=False)
        if process.returncode:
            sys.stderr.write(process.stderr)
            raise UserError(f"{mpicc} could not compile the interposer; see its messages above")
        os.replace(built, library)
    return library


class Prototype(NamedTuple):
    """A function: its name, what it returns, its parameters in C, and their names in order."""

    name: str
    returns: str
    parameters: str
    arguments: tuple[str, ...]


def preprocessed(mpicc: str | Path) -> str:
    """Returns the text of mpi.h with its includes, from mpicc's preprocessor. Raises UserError where that fails."""
    command = [str(mpicc), "-E", "-P", "-D__attribute__(x)=", "-x", "c", "-"]
    try:
        process = subprocess.run(command, input="#include <mpi.h>\n", capture_output=True, text=True, check=False)
    except OSError as problem:
        raise UserError(f"{mpicc}: {problem.strerror}; name the mpicc of the MPI to trace") from None
    if process.returncode or "MPI_Init" not in process.stdout:
        message = next(iter(process.stderr.strip().splitlines()), f"exit status {process.returncode}")
        raise UserError(f"{mpicc} finds no mpi.h ({message}); name the mpicc of the MPI to trace")
    return process.stdout


def prototypes(text: str) -> list[Prototype]:
    """Returns the functions of a preprocessed header in alphabetical order, but for those of lifetime.c."""
    functions = [match.groups() for statement in _statements(text) if (match := FUNCTION.fullmatch(statement))]
    return sorted(
        Prototype(name, returns, parameters, () if parameters == "void" else tuple(PARAMETER.findall(parameters)))
        for returns, name, parameters in functions
        if name not in HAND_WRITTEN
    )


def handles(text: str) -> dict[str, str]:
    """Returns the types, by name, of the structures in a preprocessed header whose addresses are handles, as Open MPI has them."""
    return {match[2]: match[1] for statement in _statements(text) if (match := STRUCTURE.fullmatch(statement))}


def _statements(text: str) -> list[str]:
    return [statement.strip() for statement in " ".join(text.split()).split(";")]


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
    if operation in REDUCTIONS or operation in SPREAD:
        is_reduction = operation in REDUCTIONS
        load = f"trace_reduces({REDUCED.get(operation, 'count')}, datatype, op)" if is_reduction else f"trace_spreads({SPREAD[operation]})"
        # MPI_ROOT and MPI_PROC_NULL are negative everywhere.
        return f"(root < 0 ? trace_moves(0, TRACE_PAYLOAD) : {load})" if "root" in parameters else load
    has_handle = bool({"comm", "message", "win", "fh"}.intersection(parameters))
    # Open MPI's headers have `type` for the standard's `datatype` in places.
    counted = [(count, kind if kind in parameters else "type") for count, kind in COUNTED if count in parameters]
    size_bytes = next((f"trace_bytes({count}, {kind})" for count, kind in counted if has_handle and kind in parameters), "0")
    if operation.startswith("File_"):
        return f"trace_moves({size_bytes}, TRACE_IO)"
    is_payload = size_bytes != "0" or operation.startswith("Neighbor_") or operation in {"Alltoallw", "Fetch_and_op", "Compare_and_swap"}
    return f"trace_moves({size_bytes}, {'TRACE_PAYLOAD' if is_payload else 'TRACE_OTHER'})"


def blocking_form(name: str) -> str:
    """Returns the operation of a function in the name of its blocking form: MPI_Iallreduce_c is an Allreduce."""
    operation = re.sub("^MPIX?_", "", name).removesuffix("_c")
    nonblocking = re.fullmatch(r"I([a-z]\w+)", operation)
    return nonblocking[1].capitalize() if nonblocking and nonblocking[1] not in {"probe", "mprobe"} else operation


def wrapper(number: int, prototype: Prototype) -> str:
    """Writes one function's wrapper in C; `number` is its index in the table of routines."""
    name, returns, parameters, arguments = prototype
    is_mpi = name.startswith("MPI")
    ranks = "rank, nranks" if "nranks" in arguments else "0, 1"
    return WRAPPER.format(
        name=name,
        returns=returns,
        parameters=parameters,
        real_name=f"P{name}" if is_mpi else name,
        before="" if is_mpi else f"    trace_begin_with_nccl({ranks});\n",
        arguments=", ".join(arguments),
        number=number,
        load=load_of(name, arguments),
    )


def wrappers_c(mpi_h: str) -> str:
    """Writes the file with the wrappers of a preprocessed mpi.h and of NCCL, and the names of the routines."""
    routines = [*prototypes(mpi_h), *prototypes(NCCL)]
    names = "".join(f'    "{routine.name}",\n' for routine in routines)
    wrappers = "".join(wrapper(number, routine) for number, routine in enumerate(routines))
    return f'#include "load.h"\n\n{NCCL_TYPES}{NCCL}\nconst char *const trace_names[NUM_ROUTINES] = {{\n{names}}};\n{wrappers}'


def generated_h(mpi_h: str) -> str:
    """Writes the numbers of routines, and handles that are looked up at their first use where they are addresses in the MPI library.

    With Open MPI the interposer could otherwise be loaded only together with that library.
    """
    num_of_mpi, num_of_nccl = len(prototypes(mpi_h)), len(prototypes(NCCL))
    looked_up = (
        f'#define {name} (*({kind} *)(__extension__({{ static void *_Atomic slot; trace_find(&slot, "{name}"); }})))\n'
        for name, kind in handles(mpi_h).items()
    )
    return f"#define NUM_MPI_ROUTINES {num_of_mpi}\n#define NUM_ROUTINES {num_of_mpi + num_of_nccl}\n{''.join(looked_up)}"


@dataclass(frozen=True)
class Arguments:
    """What to build, for which MPI."""

    mpicc: str | None = None
    """mpicc of the MPI to trace. Default: the one of the environment's set-up."""
    library: Path | None = None
    """Path of the library. Default: the environment's lib/libtandemtrace.so."""


def run(arguments: Arguments) -> int:
    """Builds the library, prints its path and returns the exit status."""
    print(build(arguments.library, arguments.mpicc))
    return 0


if __name__ == "__main__":
    command_line.main(run, Arguments, f"{SHELL_PYTHON} -m launch.trace.build", "Builds the MPI interposer.")
