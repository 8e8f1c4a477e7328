"""The functions and data declared by an MPI's mpi.h, after the C preprocessor."""

import subprocess
from typing import NamedTuple

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
    """The declarations of an mpi.h: functions to intercept, and {name: type} of the structures whose addresses are handles."""

    prototypes: tuple[Prototype, ...]
    data: dict[str, str]


def preprocessed(mpicc):
    """The text of mpi.h with its includes, from mpicc's preprocessor. Raises UserError where that fails."""
    command = [str(mpicc), "-E", "-P", *WITHOUT_EXTENSIONS, "-x", "c", "-"]
    try:
        done = subprocess.run(command, input="#include <mpi.h>\n", capture_output=True, text=True, check=False)
    except OSError as problem:
        raise UserError(f"{mpicc}: {problem.strerror}; name the mpicc of the MPI to trace") from None
    if done.returncode or "MPI_Init" not in done.stdout:
        message = next(iter(done.stderr.strip().splitlines()), f"exit status {done.returncode}")
        raise UserError(f"{mpicc} finds no mpi.h ({message}); name the mpicc of the MPI to trace")
    return done.stdout


def read(text):
    """The Header of a preprocessed mpi.h, without variadic functions (MPI_Pcontrol), whose wrappers are hand-written."""
    declared = [one for one in c_parser.CParser().parse(text).ext if isinstance(one, c_ast.Decl)]
    functions = {one.name: one for one in declared if isinstance(one.type, c_ast.FuncDecl) and one.name.startswith(INTERCEPTED)}
    prototypes = tuple(_prototype(one) for one in functions.values() if not _is_variadic(one))
    return Header(prototypes, {one.name: _structure(one) for one in declared if _structure(one)})


def _is_variadic(declared):
    return declared.type.args is not None and any(isinstance(one, c_ast.EllipsisParam) for one in declared.type.args.params)


def _structure(declared):
    """The type of a structure in the library, declared by `extern struct x y;`; None for any other declaration."""
    is_one = "extern" in declared.storage and isinstance(declared.type, c_ast.TypeDecl) and isinstance(declared.type.type, c_ast.Struct)
    return f"struct {declared.type.type.name}" if is_one else None


def _prototype(declared):
    write = c_generator.CGenerator().visit
    parameters = [] if declared.type.args is None else declared.type.args.params
    parameters = [one for one in parameters if write(one) != "void"]
    for number, one in enumerate(parameters):
        _name(one, getattr(one, "name", None) or f"argument{number}")
    returned = declared.type.type
    # Parentheses prevent the expansion of a macro of the same name.
    declaration = f"{write(_without_name(returned))} ({declared.name})({', '.join(write(one) for one in parameters) or 'void'})"
    return Prototype(declared.name, declaration, write(_without_name(returned)), tuple(_name_of(one) for one in parameters))


def _innermost(node):
    while not isinstance(node, c_ast.TypeDecl):
        node = node.type
    return node


def _name_of(parameter):
    return _innermost(parameter).declname


def _name(parameter, name):
    _innermost(parameter).declname = name


def _without_name(returned):
    """The return type of a function, without the function's name that its declaration carries."""
    _innermost(returned).declname = None
    return c_ast.Typename(None, [], None, returned)
