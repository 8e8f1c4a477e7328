"""Command lines of all programs: parsed into a dataclass, with one-line error messages and common exit statuses.

The annotation of an option has the values that it takes, as in `Annotated[int, Bounds(at_least=1)]`. They are checked when it is parsed.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import errno
import functools
import inspect
import io
import itertools
import os
import signal
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar, get_args, get_origin

from common.bounds import Bounds, Pattern
from common.errors import UserError, printable

if typing.TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")

# An option whose value may begin with a dash, which argparse would take for another option.
OF_ARGUMENTS = "--launcher-args"
# The errors of a full disk, which may be those of writing the output. It has no path.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
INTERRUPTING = (signal.SIGINT, signal.SIGTERM)
# The names of values in the help.
METAVARS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}


class Section(NamedTuple):
    """The heading, in the help, of an option and of those that are declared after it. Options before any heading are under "options"."""

    title: str


class Help(NamedTuple):
    """What the help has of an option in place of its docstring, of its default and of the name of its value."""

    text: str | None = None
    default: str | None = None
    metavar: str | None = None


class Positional:
    """An argument without a flag."""


def main(
    run: Callable[[Options], int],
    arguments: type[Options],
    program: str,
    description: str,
    left_out: Mapping[str, str] = {},
    helps: Mapping[str, Help] = {},
) -> NoReturn:
    """Parses the command line into the dataclass `arguments`, calls run() with it and exits with the status it returns.

    Exit status 0: all runs ok; 1: a run failed or timed out; 2: invalid arguments, or a file that cannot be read or written; 130:
    interrupted. `left_out` and `helps`: as `parse` takes them.
    """
    # A shell makes a background process ignore SIGINT, but the runs must end with it.
    for number in INTERRUPTING:
        signal.signal(number, _interrupt)
    # Under nohup it is ignored, and the program goes on. Windows has no such signal.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _hang_up)
    # Into a file or a pipe Windows writes the characters of a few languages only.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            status = run(parse(arguments, program, description, left_out=left_out, helps=helps))
        except SystemExit as end:
            # A help ends so. It may still have to be written.
            status = end.code
        if sys.stdout:
            sys.stdout.flush()
    except UserError as mistake:
        status = _refused(str(mistake))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = 130
    except BrokenPipeError:
        # The program that reads the output, such as head, has ended.
        _drop_output()
        status = 1
    except OSError as problem:
        if (message := _describe_system_error(problem)) is None:
            raise
        status = _refused(message)
    sys.exit(status)


def _refused(message: str) -> int:
    """Prints the one line about a mistake and returns the exit status."""
    print(f"error: {printable(message)}", file=sys.stderr)
    return 2


def _describe_system_error(problem: OSError) -> str | None:
    """Describes an OSError about a path, or about the output; None where it is about neither."""
    if problem.filename is not None:
        return f"{problem.filename}: {problem.strerror}"
    if problem.errno not in NO_ROOM:
        return None
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    return f"the output cannot be written ({problem.strerror})"


def _drop_output() -> None:
    """Lets output that could not be written go nowhere. Python would otherwise write it once more at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def shortened(text: str, length: int = 60) -> str:
    """Returns the text, or its beginning with an ellipsis where it is longer."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Interrupts the program, once: a second signal would interrupt what the first one ends."""
    for number in INTERRUPTING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _hang_up(number: int, frame: FrameType | None) -> NoReturn:
    """Interrupts the program since its terminal was closed. Its further output goes nowhere, instead of failing."""
    # The shell and the kernel both send the signal.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.write(stream.fileno(), b"")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    _interrupt(number, frame)


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def names_in(text: str) -> list[str]:
    """Returns the names in a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


@functools.cache
def declarations(kind: type[DataclassInstance]) -> dict[str, tuple[Any, ...]]:
    """Returns by name what the annotation of each field of a dataclass has beside the type, also of inherited fields."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: getattr(hints[field.name], "__metadata__", ()) for field in dataclasses.fields(kind)}


class Option(NamedTuple):
    """A field of a dataclass of options."""

    name: str
    kind: Any
    # The content of its annotation beside the type.
    declared: tuple[Any, ...]
    default: Any
    # The dataclass that declares it.
    owner: type


def options_of(kind: type[DataclassInstance]) -> list[Option]:
    """Returns the Options of a dataclass, with those of the dataclasses in it."""
    types, options = typing.get_type_hints(kind), []
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(types[field.name]):
            options += options_of(types[field.name])
        else:
            owner = next(base for base in kind.__mro__ if field.name in inspect.get_annotations(base))
            options.append(Option(field.name, types[field.name], declarations(kind)[field.name], field.default, owner))
    return options


def check(options: DataclassInstance) -> None:
    """Raises UserError for the first option of a dataclass, or of one in it, whose value its annotation does not allow."""
    for name, declared in declarations(type(options)).items():
        value = getattr(options, name)
        if dataclasses.is_dataclass(type(value)):
            check(value)
        if value is None:
            continue
        for allowed in declared:
            if not isinstance(allowed, Bounds | Pattern):
                continue
            for item in value if isinstance(value, tuple) else (value,):
                if problem := allowed.problem(item):
                    text = f"{item:g}" if isinstance(item, float) else repr(item)
                    option = name if Positional in declared else flag(name)
                    raise UserError(f"{option} {'has' if isinstance(value, tuple) else 'is'} {shortened(text)}; {problem}")


def parse(
    kind: type[Options],
    program: str,
    description: str,
    arguments: Sequence[str] | None = None,
    left_out: Mapping[str, str] = {},
    helps: Mapping[str, Help] = {},
) -> Options:
    """Parses the command line into an instance of the dataclass `kind`, and checks it.

    With --help, prints the help and exits with status 0. Raises UserError, in one line, for invalid arguments. `left_out` has the options
    that this program does not take, although its dataclass has them, each with the end of the message for who gives it. `helps`: the Help
    of options whose declaration does not have it.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if OF_ARGUMENTS in arguments[:-1]:
        index = arguments.index(OF_ARGUMENTS)
        arguments = [*arguments[:index], "=".join(arguments[index : index + 2]), *arguments[index + 2 :]]
    options = options_of(kind)
    positional = [f" {option.name.upper()}" for option in options if Positional in option.declared]
    usage = f"{program} [OPTIONS]{''.join(positional)}"
    parser = _Parser(prog=program, description=description, usage=usage, allow_abbrev=False)
    _add(parser, [option._replace(declared=(*option.declared, helps.get(option.name, Help()))) for option in options], left_out)
    if {"-h", "--help"} & set(arguments):
        _print_help(parser)
    _expect_none_left_out(left_out, arguments)
    _expect_no_empty_text(options, arguments)
    parsed = _made(kind, vars(parser.parse_args(arguments)))
    check(parsed)
    return parsed


class _Parser(argparse.ArgumentParser):
    """Raises UserError, where argparse prints how the program is used."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{shortened(message, 300)}; see {self.prog} --help")


def _add(parser: argparse.ArgumentParser, options: Iterable[Option], left_out: Collection[str]) -> None:
    """Adds the options but those left out to a parser, in the sections of its help, in the order of their first options."""
    sections: dict[str, argparse.ArgumentParser | argparse._ArgumentGroup] = {"": parser}
    title = ""
    for option in options:
        title = next((declared.title for declared in option.declared if isinstance(declared, Section)), title)
        if option.name in left_out:
            continue
        if title not in sections:
            sections[title] = parser.add_argument_group(f"{title} options")
        _add_one(sections[title], option)


def _add_one(parser: argparse.ArgumentParser | argparse._ArgumentGroup, option: Option) -> None:
    """Adds an option to a parser, or to a section of it."""
    shown = next((declared for declared in option.declared if isinstance(declared, Help)), Help())
    kind = _without_none(option.kind)
    is_several = get_origin(kind) is tuple
    kind = get_args(kind)[0] if is_several else kind
    has_default = option.default is not dataclasses.MISSING
    default_text = " ".join(map(str, option.default if isinstance(option.default, tuple) else [option.default]))
    default = shown.default or ("" if option.default in (None, "", (), dataclasses.MISSING) else f"(default: {default_text})")
    text = f"{shown.text or descriptions(option.owner).get(option.name, '')} {default}".strip()
    keywords: dict[str, Any] = {"help": text.replace("%", "%%")}
    if kind is bool:
        parser.add_argument(flag(option.name), action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, **keywords)
        return
    if get_origin(kind) is Literal:
        keywords |= {"choices": get_args(kind), "type": type(get_args(kind)[0])}
    else:
        keywords |= {"type": kind, "metavar": shown.metavar or METAVARS[kind]}
    if Positional in option.declared:
        keywords["metavar"] = shown.metavar or option.name.upper().replace("_", "-")
        keywords["nargs"] = ("*" if has_default else "+") if is_several else "?" if has_default else None
        parser.add_argument(option.name, default=option.default if has_default else None, **keywords)
    else:
        keywords |= {"nargs": "+"} if is_several else {}
        parser.add_argument(flag(option.name), dest=option.name, default=argparse.SUPPRESS, **keywords)


def _without_none(kind: Any) -> Any:
    """Returns the type of the values of an option that may be None."""
    if get_origin(kind) in (typing.Union, types.UnionType):
        (kind,) = (member for member in get_args(kind) if member is not type(None))
    return kind


@functools.cache
def descriptions(kind: type) -> dict[str, str]:
    """Returns by name the docstring, in one line, of each field that a dataclass declares."""
    (declaration,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    texts = {}
    for field, text in itertools.pairwise(declaration.body if isinstance(declaration, ast.ClassDef) else ()):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(description))):
                texts[name] = " ".join(description.split())
    return texts


def _made(kind: type[Options], values: Mapping[str, Any]) -> Options:
    """Makes a dataclass, and those in it, of the values that were given; one of several values has them in a tuple."""
    kinds, fields = typing.get_type_hints(kind), {}
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(kinds[field.name]):
            fields[field.name] = _made(kinds[field.name], values)
        elif field.name in values:
            value = values[field.name]
            fields[field.name] = tuple(value) if isinstance(value, list) else value
    return kind(**fields)


def _print_help(parser: argparse.ArgumentParser) -> NoReturn:
    try:
        print(parser.format_help(), end="", flush=True)
    except BrokenPipeError:
        # The program that reads the help, such as head, has ended.
        _drop_output()
        sys.exit(1)
    sys.exit(0)


def _expect_none_left_out(left_out: Mapping[str, str], arguments: Iterable[str]) -> None:
    """Raises UserError for an option that the program does not take."""
    flags = {argument.partition("=")[0] for argument in arguments}
    for name, message in left_out.items():
        if flags & {flag(name), flag(f"no_{name}")}:
            raise UserError(f"{flag(name)} {message}")


def _expect_no_empty_text(options: Iterable[Option], arguments: Sequence[str]) -> None:
    """Raises UserError for an option without a text, which a variable that is not set leaves; Path takes it for the current folder."""
    may_be_empty = {OF_ARGUMENTS, *(flag(option.name) for option in options if option.default == "")}
    for before, argument in zip(["", *arguments], arguments, strict=False):
        option, equals, text = argument.partition("=") if argument.startswith("--") else (before, "=", argument)
        if equals and not text and option not in may_be_empty:
            raise UserError(f"{option if option.startswith('--') else 'an argument'} is empty; give a value, or leave it out")
