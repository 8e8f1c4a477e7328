"""Generates the interposer's wrappers in C: one for each function of an mpi.h, but those of lifetime.c, and for each of NCCL's here."""

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from pycparser import c_ast, c_generator, c_parser

from common.errors import UserError
from launch.trace import loads

# They begin, end or switch recording.
HAND_WRITTEN = ("MPI_Init", "MPI_Init_thread", "MPI_Finalize", "MPI_Abort", "MPI_Pcontrol")
# Compiler extensions that the C parser does not support.
WITHOUT_EXTENSIONS = ("-D__attribute__(x)=", "-D__extension__=", "-D__restrict=", "-D__inline=inline", "-D__asm__(x)=", "-D__asm(x)=")

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
int ncclCommInitAll(void **comms, int num_devices, const int *devices);
int ncclCommSplit(void *comm, int color, int key, void **made, void *config);
int ncclCommFinalize(void *comm);
int ncclCommDestroy(void *comm);
int ncclCommAbort(void *comm);
"""

# Local names must differ from those of parameters.
WRAPPER = """
TRACE_EXPORT {declaration}
{{
    static void *_Atomic trace_slot;
    __typeof__({name}) *trace_function = trace_real(&trace_slot, "{real_name}");
{before}    struct trace_call trace_call = trace_enter();
    struct trace_load trace_load = trace_call.table ? {load} : trace_moves(0, TRACE_OTHER);
    trace_start(&trace_call);
    {returns} trace_result = trace_function({arguments});
    trace_leave(&trace_call, {number}, trace_load);
    return trace_result;
}}
"""


class Prototype(NamedTuple):
    """A function: its name, its declaration in C, what it returns, and the names of its parameters in order."""

    name: str
    declaration: str
    returns: str
    parameters: tuple[str, ...]


class Header(NamedTuple):
    """The declarations of an mpi.h: functions to intercept, and the types, by name, of the structures whose addresses are handles."""

    prototypes: tuple[Prototype, ...]
    data: dict[str, str]


def preprocessed(mpicc: str | Path) -> str:
    """Returns the text of mpi.h with its includes, from mpicc's preprocessor. Raises UserError where that fails."""
    command = [str(mpicc), "-E", "-P", *WITHOUT_EXTENSIONS, "-x", "c", "-"]
    try:
        process = subprocess.run(command, input="#include <mpi.h>\n", capture_output=True, text=True, check=False)
    except OSError as problem:
        raise UserError(f"{mpicc}: {problem.strerror}; name the mpicc of the MPI to trace") from None
    if process.returncode or "MPI_Init" not in process.stdout:
        message = next(iter(process.stderr.strip().splitlines()), f"exit status {process.returncode}")
        raise UserError(f"{mpicc} finds no mpi.h ({message}); name the mpicc of the MPI to trace")
    return process.stdout


def read(text: str) -> Header:
    """Reads a preprocessed mpi.h, without variadic functions (MPI_Pcontrol), whose wrappers are hand-written."""
    nodes = [node for node in c_parser.CParser().parse(text).ext if isinstance(node, c_ast.Decl)]
    functions = {node.name: node for node in nodes if isinstance(node.type, c_ast.FuncDecl) and node.name.startswith(("MPI_", "MPIX_"))}
    prototypes = tuple(_prototype(node) for node in functions.values() if not _is_variadic(node))
    return Header(prototypes, {node.name: structure for node in nodes if (structure := _structure(node))})


def nccl() -> list[Prototype]:
    """Returns the prototypes of NCCL."""
    text = f"typedef unsigned long size_t;\n{NCCL_TYPES}{NCCL}"
    return [_prototype(node) for node in c_parser.CParser().parse(text).ext if isinstance(node, c_ast.Decl)]


def _is_variadic(node: c_ast.Decl) -> bool:
    return node.type.args is not None and any(isinstance(parameter, c_ast.EllipsisParam) for parameter in node.type.args.params)


def _structure(node: c_ast.Decl) -> str | None:
    """Returns the type of a structure in the library, declared by `extern struct x y;`; None for any other declaration."""
    is_structure = "extern" in node.storage and isinstance(node.type, c_ast.TypeDecl) and isinstance(node.type.type, c_ast.Struct)
    return f"struct {node.type.type.name}" if is_structure else None


def _prototype(node: c_ast.Decl) -> Prototype:
    write = c_generator.CGenerator().visit
    parameters = [] if node.type.args is None else node.type.args.params
    parameters = [parameter for parameter in parameters if write(parameter) != "void"]
    for number, parameter in enumerate(parameters):
        _innermost(parameter).declname = getattr(parameter, "name", None) or f"argument{number}"
    returned = node.type.type
    _innermost(returned).declname = None
    returns = write(c_ast.Typename(None, [], None, returned))
    # Parentheses prevent the expansion of a macro of the same name.
    declaration = f"{returns} ({node.name})({', '.join(write(parameter) for parameter in parameters) or 'void'})"
    return Prototype(node.name, declaration, returns, tuple(_innermost(parameter).declname for parameter in parameters))


def _innermost(node: Any) -> c_ast.TypeDecl:
    """Returns the declaration of a type inside those of pointers, arrays and functions to it."""
    while not isinstance(node, c_ast.TypeDecl):
        node = node.type
    return node


def wrapper(number: int, prototype: Prototype) -> str:
    """Writes one function's wrapper in C; `number` is its index in the table of routines."""
    is_mpi = prototype.name.startswith("MPI")
    has_rank = "rank" in prototype.parameters and "nranks" in prototype.parameters
    return WRAPPER.format(
        declaration=prototype.declaration,
        name=prototype.name,
        real_name=f"P{prototype.name}" if is_mpi else prototype.name,
        before="" if is_mpi else f"    trace_begin_with_nccl({'rank, nranks' if has_rank else '0, 1'});\n",
        load=loads.load_of(prototype.name, prototype.parameters),
        returns=prototype.returns,
        arguments=", ".join(prototype.parameters),
        number=number,
    )


def intercepted(header: Header) -> list[Prototype]:
    """Returns the prototypes of MPI with a generated wrapper, in the alphabetical order of the table of routines."""
    return sorted(prototype for prototype in header.prototypes if prototype.name not in HAND_WRITTEN)


def wrappers_c(header: Header) -> str:
    """Writes the file with all wrappers and the names of the routines."""
    prototypes = [*intercepted(header), *nccl()]
    names = "".join(f'    "{prototype.name}",\n' for prototype in prototypes)
    declarations = "".join(f"{prototype.declaration};\n" for prototype in nccl())
    wrappers = "".join(wrapper(number, prototype) for number, prototype in enumerate(prototypes))
    return f'#include "load.h"\n\n{NCCL_TYPES}{declarations}\nconst char *const trace_names[NUM_ROUTINES] = {{\n{names}}};\n{wrappers}'


def routines_h(header: Header) -> str:
    num_of_mpi = len(intercepted(header))
    return f"#define NUM_MPI_ROUTINES {num_of_mpi}\n#define NUM_ROUTINES {num_of_mpi + len(nccl())}\n"


def handles_h(header: Header) -> str:
    """Writes definitions that look up handles at their first use, for an MPI whose handles are addresses in its library (Open MPI).

    Otherwise the interposer could be loaded only together with that library.
    """
    return "".join(
        f'#define {name} (*({kind} *)(__extension__({{ static void *_Atomic slot; trace_real(&slot, "{name}"); }})))\n'
        for name, kind in header.data.items()
    )
