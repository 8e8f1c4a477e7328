"""Command lines of all programs: parsed into a dataclass, with one-line error messages and common exit statuses."""

import contextlib
import dataclasses
import io
import re
import signal
import sys

import tyro

from common.errors import UserError


def main(run, arguments, program, description):
    """Parses the command line into the dataclass `arguments`, calls run() with it and exits with the status it returns.

    Exit status 0: all runs ok; 1: a run failed or timed out; 2: invalid arguments; 130: interrupted.
    """
    # A shell makes a background process ignore SIGINT, but the runs must end with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(run(parse(arguments, program, description)))
    except UserError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def flag(name):
    return "--" + name.replace("_", "-")


def parse(kind, program, description, arguments=None):
    """An instance of the dataclass `kind`, or of one of several with subcommands, parsed from the command line.

    With --help, prints the help and exits with status 0. Raises UserError, in one line, for invalid arguments.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if {"-h", "--help"} & set(arguments):
        # The help of a subcommand is its own.
        subcommand = [] if dataclasses.is_dataclass(kind) or arguments[0].startswith("-") else arguments[:1]
        return tyro.cli(kind, prog=program, description=description, args=[*subcommand, "--help"])
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            return tyro.cli(kind, prog=program, description=description, args=arguments)
    except SystemExit:
        raise UserError(f"{one_line(output.getvalue())}; see {program} --help") from None


def one_line(message):
    """tyro's error message, a box of several lines, as one line."""
    text = re.sub(r"[^\x20-\x7e]+", " ", re.sub(r"\x1b\[[0-9;]*m", "", message))
    text = re.sub(r"\s+", " ", re.sub(r"-{4,}", " ", text.split("For full helptext")[0])).strip()
    if found := re.search(r"Unrecognized or misplaced options: (\S*)|Unrecognized options: (.*)", text):
        return f"unknown argument: {(found[1] or found[2]).strip()}"
    if found := re.search(r"Argument helptext: (.*)", text):
        given = re.search(r"(?:arguments:|from|value|invalid choice) \[?('[^\]]*?')", text)
        return f"invalid value {given[1]} for {found[1].strip()}" if given else f"invalid value for {found[1].strip()}"
    return re.sub(r"^(Missing argument|Invalid choice|Value error|Parsing error) ", "", text).rstrip(".")
