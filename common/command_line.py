"""Command lines of all programs: parsed into a dataclass, with one-line error messages and common exit statuses.

The annotation of an option has the values that it takes, as in `Annotated[int, Bounds(at_least=1)]`. They are checked when it is parsed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import inspect
import io
import operator
import os
import re
import signal
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType, MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeVar

import tyro

from common.errors import UserError, printable
from common.help_sections import in_sections

if typing.TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

Options = TypeVar("Options", bound="DataclassInstance")


class Bounds(NamedTuple):
    """The numbers that an option takes; `hint` ends the message about others. NaN is never among them.

    Each option has a lower and an upper bound: without one, a mistyped number runs for ever or fills the memory.
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    hint: str = ""

    def problem(self, value: float) -> str | None:
        """Describes the values that are allowed; None for one of these."""
        limits = [
            ("at least", self.at_least, operator.ge), ("above", self.above, operator.gt),
            ("at most", self.at_most, operator.le), ("below", self.below, operator.lt),
        ]  # fmt: skip
        limits = [(words, limit, holds) for words, limit, holds in limits if limit is not None]
        if all(holds(value, limit) for _, limit, holds in limits):
            return None
        return f"it must be {' and '.join(f'{words} {limit}' for words, limit, _ in limits)}{self.hint}"

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        limits = {"ge": self.at_least, "gt": self.above, "le": self.at_most, "lt": self.below}
        return _narrowed(handler(kind), {keyword: limit for keyword, limit in limits.items() if limit is not None})


# pydantic's schemas are dictionaries of many types.
def _narrowed(schema: Any, keywords: Mapping[str, Any]) -> Any:
    """Adds keywords to pydantic's schema of a value, or of one that may be None: records are checked as command lines are."""
    return schema | {"schema": schema["schema"] | keywords} if schema["type"] == "nullable" else schema | keywords


# An option whose value may begin with a dash, which tyro would take for another option.
OF_ARGUMENTS = "--launcher-args"
# The errors of a full disk, which may be those of writing the output. It has no path.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
# None is the value of an option that is not given; nobody types it.
TYRO_CONFIG = (tyro.conf.DisallowNone,)
NONE_LEFT_OUT: Mapping[str, str] = MappingProxyType({})
# More than any count, rate or time of a training.
MOST = 10**9
FROM_0 = Bounds(at_least=0, at_most=MOST)
FROM_1 = Bounds(at_least=1, at_most=MOST)
POSITIVE = Bounds(above=0, at_most=MOST)
NUMBER = Bounds(at_least=-1e30, at_most=1e30)
RANKS = Bounds(at_least=1, at_most=2**24)
# What is started for each: a run, a thread, a layer.
REPEATS = Bounds(at_least=1, at_most=1000)
THREADS = Bounds(at_least=1, at_most=4096)
LAYERS = Bounds(at_least=1, at_most=256)


class Pattern(NamedTuple):
    """The texts that an option takes: those that a regular expression matches, and the characters of these in words."""

    expression: str
    characters: str

    def problem(self, value: str) -> str | None:
        """Describes the texts that are allowed; None for one of these."""
        return None if re.fullmatch(self.expression, value) else f"use {self.characters}"

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _narrowed(handler(kind), {"pattern": f"^({self.expression})$"})


def main(
    run: Callable[[Options], int], arguments: type[Options], program: str, description: str, left_out: Mapping[str, str] = NONE_LEFT_OUT
) -> NoReturn:
    """Parses the command line into the dataclass `arguments`, calls run() with it and exits with the status it returns.

    Exit status 0: all runs ok; 1: a run failed or timed out; 2: invalid arguments, or a file that cannot be read or written; 130:
    interrupted. `left_out`: as `parse` takes it.
    """
    # A shell makes a background process ignore SIGINT, but the runs must end with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # Under nohup it is ignored, and the program goes on. Windows has no such signal.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _hang_up)
    # Into a file or a pipe Windows writes the characters of a few languages only.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            status = run(parse(arguments, program, description, left_out=left_out))
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


def _hang_up(_number: int, _frame: FrameType | None) -> NoReturn:
    """Interrupts the program since its terminal was closed. Its further output goes nowhere, instead of failing."""
    # The shell and the kernel both send the signal, and the second one would interrupt what the first one ends.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.write(stream.fileno(), b"")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    raise KeyboardInterrupt


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
            for part in value if isinstance(value, tuple) else (value,):
                if problem := allowed.problem(part):
                    text = f"{part:g}" if isinstance(part, float) else repr(part)
                    option = name if tyro.conf.Positional in declared else flag(name)
                    raise UserError(f"{option} {'has' if isinstance(value, tuple) else 'is'} {shortened(text)}; {problem}")


def parse(
    kind: type[Options],
    program: str,
    description: str,
    arguments: Sequence[str] | None = None,
    left_out: Mapping[str, str] = NONE_LEFT_OUT,
) -> Options:
    """Parses the command line into an instance of the dataclass `kind`, and checks it.

    With --help, prints the help and exits with status 0. Raises UserError, in one line, for invalid arguments. `left_out` has the options
    that this program does not take, although its dataclass has them, each with the end of the message for who gives it.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if {"-h", "--help"} & set(arguments):
        _print_help(in_sections(options_of(kind), left_out), program, description)
    if OF_ARGUMENTS in arguments[:-1]:
        place = arguments.index(OF_ARGUMENTS)
        arguments = [*arguments[:place], "=".join(arguments[place : place + 2]), *arguments[place + 2 :]]
    _expect_none_left_out(left_out, arguments)
    _expect_no_empty_text(kind, arguments)
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            options = tyro.cli(kind, prog=program, description=description, args=arguments, config=TYRO_CONFIG)
    except SystemExit:
        raise UserError(f"{one_line(output.getvalue())}; see {program} --help") from None
    check(options)
    return options


def _print_help(sections: type, program: str, description: str) -> NoReturn:
    try:
        with contextlib.suppress(SystemExit):
            tyro.cli(sections, prog=program, description=description, args=["--help"], config=TYRO_CONFIG)
        sys.stdout.flush()
    except BrokenPipeError:
        # The program that reads the help, such as head, has ended.
        _drop_output()
        sys.exit(1)
    sys.exit(0)


def _expect_none_left_out(left_out: Mapping[str, str], arguments: Iterable[str]) -> None:
    """Raises UserError for an option that the program does not take."""
    # tyro takes --run_id for --run-id too.
    given = {argument.partition("=")[0].replace("_", "-") for argument in arguments}
    for name, message in left_out.items():
        if given & {flag(name), flag(f"no_{name}")}:
            raise UserError(f"{flag(name)} {message}")


def _expect_no_empty_text(kind: type[DataclassInstance], arguments: Sequence[str]) -> None:
    """Raises UserError for an option without a text, which a variable that is not set leaves; Path takes it for the current folder."""
    may_be_empty = {OF_ARGUMENTS, *(flag(option.name) for option in options_of(kind) if option.default == "")}
    for before, argument in zip(["", *arguments], arguments, strict=False):
        option, equals, text = argument.partition("=") if argument.startswith("--") else (before, "=", argument)
        if equals and not text and option not in may_be_empty:
            raise UserError(f"{option if option.startswith('--') else 'an argument'} is empty; give a value, or leave it out")


def one_line(message: str) -> str:
    """Shortens tyro's error message, a box of several lines, to one line."""
    text = re.sub(r"[^\x20-\x7e]+", " ", re.sub(r"\x1b\[[0-9;]*m", "", message))
    text = re.sub(r"\s+", " ", re.sub(r"-{4,}", " ", text.split("For full helptext")[0])).strip()
    if unknown := re.search(r"Unrecognized or misplaced options: (\S*)|Unrecognized options: (.*)", text):
        return f"unknown argument: {(unknown[1] or unknown[2]).strip()}"
    if option := re.search(r"Argument helptext: (.*)", text):
        value = re.search(r"(?:arguments:|from|value|invalid choice) \[?('[^\]]*?')", text)
        return f"invalid value {value[1]} for {option[1].strip()}" if value else f"invalid value for {option[1].strip()}"
    return re.sub(r"^(Missing argument|Invalid choice|Value error|Parsing error) ", "", text).rstrip(".")
