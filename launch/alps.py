"""An aprun for machines without ALPS: its options, as old job scripts have them, for the launcher that is at hand."""

import argparse
import contextlib
import io
import os
import sys

from common import records
from common.errors import UserError
from launch import detect
from launch.launchers import LAUNCHERS, Start
from launch.runner import typed

PROGRAM = "launch/aprun"
BINDINGS = ("depth", "cpu", "none")


def parser():
    made = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, allow_abbrev=False, usage="%(prog)s [options] program [arguments]")
    made.add_argument("-n", "--pes", type=whole, default=1, metavar="RANKS", help="number of ranks (default: 1)")
    made.add_argument("-N", "--pes-per-node", type=whole, metavar="RANKS", help="ranks on each node (default: all on one)")
    made.add_argument("-d", "--cpus-per-pe", type=whole, default=1, metavar="CORES", help="cores of each rank (default: 1)")
    made.add_argument(
        "-cc", "--cc", "--cpu-binding", choices=BINDINGS, default="cpu", help="taken, and left to the launcher at hand and to the program"
    )
    made.add_argument("-e", "--environment-override", action="append", default=[], metavar="NAME=VALUE", help="a variable for every rank")
    made.add_argument("-q", "--quiet", action="store_true", help="taken, and changes nothing")
    made.add_argument("--dry-run", action="store_true", help="print the command and run nothing")
    made.add_argument("--version", action="version", version="Tandem's aprun: it starts the launcher at hand")
    made.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return made


def whole(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def read(arguments):
    """aprun's arguments. Raises UserError, in one line, for what it does not know."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            given = parser().parse_args(arguments)
    except SystemExit as end:
        if not end.code:
            raise
        raise UserError(f"{told.getvalue().strip().rpartition('error: ')[2]}; see {PROGRAM} --help") from None
    if not given.program:
        raise UserError(f"there is no program to start; see {PROGRAM} --help")
    if given.program[0].startswith("-"):
        raise UserError(f"unknown option {given.program[0]}; see {PROGRAM} --help")
    if ":" in given.program:
        raise UserError("several programs in one run, separated by ':', are not supported here; start one aprun for each")
    for variable in given.environment_override:
        if "=" not in variable:
            raise UserError(f"-e {variable} has no value; write -e NAME=VALUE")
    return given


def command(given, launcher, executable, needed):
    """The argv that does with a launcher what aprun's arguments ask for, and its variables, on top of those it needs."""
    variables = needed | dict(variable.split("=", 1) for variable in given.environment_override)
    start = Start(
        executable=executable, num_ranks=given.pes, ranks_per_node=min(given.pes, given.pes_per_node or given.pes),
        threads=given.cpus_per_pe, program=tuple(given.program), variables=variables,
    )  # fmt: skip
    return LAUNCHERS[launcher](start), variables


def main():
    """Becomes the launcher. Exit status: the launcher's; 2: a mistake in the arguments, or no launcher."""
    try:
        given = read(sys.argv[1:])
        launcher, executable = detect.find(None, os.environ, records.ROOT)
        if launcher == "aprun":
            raise UserError("there is an aprun of ALPS here; use it")
        own = records.ROOT / executable
        argv, variables = command(given, launcher, str(own) if own.exists() else executable, detect.variables_for(launcher, records.ROOT))
    except UserError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(2)
    if given.dry_run:
        print(typed(argv, variables))
        return
    os.execvpe(argv[0], argv, os.environ | variables)


if __name__ == "__main__":
    main()
