"""An aprun for machines without ALPS: accepts the options of old job scripts and starts the detected launcher."""

import argparse
import functools
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from common.backends import ROOT
from common.command_line import RANKS, THREADS, Bounds
from common.errors import UserError
from launch.launchers import detect, texts
from launch.launchers.commands import Launcher, Start, shell_command

PROGRAM = "launch/aprun"
BINDINGS = ("depth", "cpu", "none")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {PROGRAM} --help")


def parser() -> Parser:
    aprun = Parser(prog=PROGRAM, description=__doc__, allow_abbrev=False, usage="%(prog)s [options] program [arguments]")
    ranks = functools.partial(whole, RANKS)
    aprun.add_argument("-n", "--pes", type=ranks, default=1, metavar="RANKS", help="number of ranks (default: 1)")
    aprun.add_argument("-N", "--pes-per-node", type=ranks, metavar="RANKS", help="ranks per node (default: all on one)")
    aprun.add_argument(
        "-d", "--cpus-per-pe", type=functools.partial(whole, THREADS), default=1, metavar="CORES", help="cores per rank (default: 1)"
    )
    aprun.add_argument(
        "-cc", "--cc", "--cpu-binding", choices=BINDINGS, default="cpu", help="accepted; binding is left to the launcher and the program"
    )
    aprun.add_argument("-e", "--environment-override", action="append", default=[], metavar="NAME=VALUE", help="variable for every rank")
    aprun.add_argument("-q", "--quiet", action="store_true", help="accepted; no effect")
    aprun.add_argument("--dry-run", action="store_true", help="print the command without running it")
    aprun.add_argument("--version", action="version", version="Tandem's aprun: starts the detected launcher")
    aprun.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return aprun


def whole(bounds: Bounds, text: str) -> int:
    """Reads the number in a text. argparse shows the message of the error for any other text."""
    # No bound has as many digits as this.
    number = int(text) if re.fullmatch(r"\d{1,20}", text, re.ASCII) else None
    if number is None or bounds.problem(number):
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise argparse.ArgumentTypeError(f"{shown!r} is not an integer from {bounds.at_least} to {bounds.at_most}")
    return number


def read(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments. Raises UserError, in one line, for invalid or unknown ones."""
    aprun = parser()
    options = aprun.parse_args(argv)
    if not options.program:
        aprun.error("no program given")
    if options.program[0].startswith("-"):
        aprun.error(f"unknown option {options.program[0]}")
    if ":" in options.program:
        raise UserError(f"several programs separated by ':' are not supported; call {PROGRAM} for each")
    for variable in options.environment_override:
        if "=" not in variable:
            raise UserError(f"-e {variable} has no value; write -e NAME=VALUE")
        texts.expect_variable(variable.partition("=")[0], "-e")
    return options


def start_of(options: argparse.Namespace, launcher: Launcher) -> Start:
    """Returns the Start of a launcher for aprun's options."""
    variables = launcher.variables | dict(variable.split("=", 1) for variable in options.environment_override)
    ranks_per_node = min(options.pes, options.pes_per_node or options.pes)
    return Start(launcher, options.pes, ranks_per_node, options.cpus_per_pe, tuple(options.program), variables)


def main() -> None:
    """Replaces this process by the launcher. Exit status: the launcher's; 2: invalid arguments, or no launcher found."""
    try:
        options = read(sys.argv[1:])
        launcher = detect.choose()
        if launcher.name == "aprun":
            raise UserError("ALPS is installed; use its aprun")
        path = ROOT / launcher.executable
        start = start_of(options, launcher._replace(executable=str(path)) if path.exists() else launcher)
    except UserError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(2)
    if options.dry_run:
        print(shell_command(start))
        return
    argv = start.argv()
    os.execvpe(argv[0], argv, os.environ | start.variables)


if __name__ == "__main__":
    main()
