"""The functions and data declared by an MPI's mpi.h, after the C preprocessor."""

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from pycparser import c_ast, c_generator, c_parser

from common.errors import UserError

# Compiler extensions that the C parser does not support.
WITHOUT_EXTENSIONS = ("-D__attribute__(x)=", "-D__extension__=", "-D__restrict=", "-D__inline=inline", "-D__asm__(x)=", "-D__asm(x)=")
INTERCEPTED = ("MPI_", "MPIX_")


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
    functions = {node.name: node for node in nodes if isinstance(node.type, c_ast.FuncDecl) and node.name.startswith(INTERCEPTED)}
    prototypes = tuple(_prototype(node) for node in functions.values() if not _is_variadic(node))
    return Header(prototypes, {node.name: structure for node in nodes if (structure := _structure(node))})


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
    # Parentheses prevent the expansion of a macro of the same name.
    declaration = f"{write(_without_name(returned))} ({node.name})({', '.join(write(parameter) for parameter in parameters) or 'void'})"
    names = tuple(_innermost(parameter).declname for parameter in parameters)
    return Prototype(node.name, declaration, write(_without_name(returned)), names)


def _innermost(node: Any) -> c_ast.TypeDecl:
    """Returns the declaration of a type inside those of pointers, arrays and functions to it."""
    while not isinstance(node, c_ast.TypeDecl):
        node = node.type
    return node


def _without_name(returned: c_ast.Node) -> c_ast.Typename:
    """Returns the return type of a function, without the function's name that its declaration carries."""
    _innermost(returned).declname = None
    return c_ast.Typename(None, [], None, returned)
