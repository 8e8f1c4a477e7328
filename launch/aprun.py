"""An aprun for machines without ALPS: accepts the options of old job scripts and starts the detected launcher."""

import argparse
import contextlib
import io
import os
import sys

from common.errors import UserError
from common.record import records
from launch.launchers import detect
from launch.launchers.commands import LAUNCHERS, Start, shell_command

PROGRAM = "launch/aprun"
BINDINGS = ("depth", "cpu", "none")


def parser():
    made = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, allow_abbrev=False, usage="%(prog)s [options] program [arguments]")
    made.add_argument("-n", "--pes", type=whole, default=1, metavar="RANKS", help="number of ranks (default: 1)")
    made.add_argument("-N", "--pes-per-node", type=whole, metavar="RANKS", help="ranks per node (default: all on one)")
    made.add_argument("-d", "--cpus-per-pe", type=whole, default=1, metavar="CORES", help="cores per rank (default: 1)")
    made.add_argument(
        "-cc", "--cc", "--cpu-binding", choices=BINDINGS, default="cpu", help="accepted; binding is left to the launcher and the program"
    )
    made.add_argument("-e", "--environment-override", action="append", default=[], metavar="NAME=VALUE", help="variable for every rank")
    made.add_argument("-q", "--quiet", action="store_true", help="accepted; no effect")
    made.add_argument("--dry-run", action="store_true", help="print the command without running it")
    made.add_argument("--version", action="version", version="Tandem's aprun: starts the detected launcher")
    made.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return made


def whole(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return int(text)


def read(arguments):
    """The parsed arguments. Raises UserError, in one line, for invalid or unknown ones."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output):
            given = parser().parse_args(arguments)
    except SystemExit as end:
        if not end.code:
            raise
        raise UserError(f"{output.getvalue().strip().rpartition('error: ')[2]}; see {PROGRAM} --help") from None
    if not given.program:
        raise UserError(f"no program given; see {PROGRAM} --help")
    if given.program[0].startswith("-"):
        raise UserError(f"unknown option {given.program[0]}; see {PROGRAM} --help")
    if ":" in given.program:
        raise UserError(f"several programs separated by ':' are not supported; call {PROGRAM} for each")
    for variable in given.environment_override:
        if "=" not in variable:
            raise UserError(f"-e {variable} has no value; write -e NAME=VALUE")
    return given


def command(given, launcher, executable, needed):
    """(argv, environment variables) of a launcher for aprun's arguments; `needed` are variables that the launcher requires."""
    variables = needed | dict(variable.split("=", 1) for variable in given.environment_override)
    start = Start(
        executable=executable, num_ranks=given.pes, ranks_per_node=min(given.pes, given.pes_per_node or given.pes),
        cores_per_rank=given.cpus_per_pe, program=tuple(given.program), variables=variables,
    )  # fmt: skip
    return LAUNCHERS[launcher].argv(start), variables


def main():
    """Replaces this process by the launcher. Exit status: the launcher's; 2: invalid arguments, or no launcher found."""
    try:
        given = read(sys.argv[1:])
        launcher, executable = detect.find(None, os.environ, records.ROOT)
        if launcher == "aprun":
            raise UserError("ALPS is installed; use its aprun")
        own = records.ROOT / executable
        argv, variables = command(given, launcher, str(own) if own.exists() else executable, detect.variables_for(launcher, records.ROOT))
    except UserError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(2)
    if given.dry_run:
        print(shell_command(argv, variables))
        return
    os.execvpe(argv[0], argv, os.environ | variables)


if __name__ == "__main__":
    main()
