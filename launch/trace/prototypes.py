"""The functions and data that an MPI's mpi.h declares, as the C compiler sees them."""

import subprocess
from typing import NamedTuple

from pycparser import c_ast, c_generator, c_parser

from common.errors import UserError

# What compilers add to C and a parser of C does not know.
WITHOUT_EXTENSIONS = ("-D__attribute__(x)=", "-D__extension__=", "-D__restrict=", "-D__inline=inline", "-D__asm__(x)=", "-D__asm(x)=")
INTERCEPTED = ("MPI_", "MPIX_")


class Prototype(NamedTuple):
    """A function: its name, its declaration in C, what it returns, and the names of its parameters in order."""

    name: str
    declaration: str
    returns: str
    parameters: tuple[str, ...]


class Header(NamedTuple):
    """What an mpi.h declares: the functions to intercept, and {name: type} of the structures that handles are addresses of."""

    prototypes: tuple[Prototype, ...]
    data: dict[str, str]


def preprocessed(mpicc):
    """The text of mpi.h with all that it includes, as mpicc's preprocessor gives it. Raises UserError where it gives none."""
    command = [str(mpicc), "-E", "-P", *WITHOUT_EXTENSIONS, "-x", "c", "-"]
    try:
        done = subprocess.run(command, input="#include <mpi.h>\n", capture_output=True, text=True, check=False)
    except OSError as problem:
        raise UserError(f"{mpicc}: {problem.strerror}; name the mpicc of the MPI to trace") from None
    if done.returncode or "MPI_Init" not in done.stdout:
        told = next(iter(done.stderr.strip().splitlines()), f"exit status {done.returncode}")
        raise UserError(f"{mpicc} finds no mpi.h ({told}); name the mpicc of the MPI to trace")
    return done.stdout


def read(text):
    """The Header of a preprocessed mpi.h. Functions with a variable list of arguments (MPI_Pcontrol) are left to the hand-written part."""
    declared = [one for one in c_parser.CParser().parse(text).ext if isinstance(one, c_ast.Decl)]
    functions = {one.name: one for one in declared if isinstance(one.type, c_ast.FuncDecl) and one.name.startswith(INTERCEPTED)}
    prototypes = tuple(_prototype(one) for one in functions.values() if not _is_variadic(one))
    return Header(prototypes, {one.name: _structure(one) for one in declared if _structure(one)})


def _is_variadic(declared):
    return declared.type.args is not None and any(isinstance(one, c_ast.EllipsisParam) for one in declared.type.args.params)


def _structure(declared):
    """The type of a structure that lies in the library, as `extern struct x y;` says; None for any other declaration."""
    is_one = "extern" in declared.storage and isinstance(declared.type, c_ast.TypeDecl) and isinstance(declared.type.type, c_ast.Struct)
    return f"struct {declared.type.type.name}" if is_one else None


def _prototype(declared):
    write = c_generator.CGenerator().visit
    parameters = [] if declared.type.args is None else declared.type.args.params
    parameters = [one for one in parameters if write(one) != "void"]
    for number, one in enumerate(parameters):
        _name(one, getattr(one, "name", None) or f"argument{number}")
    returned = declared.type.type
    # In parentheses, the name is the function even where a macro has the same name.
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
    """The type of what a function returns; its declaration carries the function's name."""
    _innermost(returned).declname = None
    return c_ast.Typename(None, [], None, returned)
