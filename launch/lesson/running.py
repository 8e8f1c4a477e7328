"""The command line of a lesson, the matrix that it runs, and the records that this leaves."""

import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from common.bounds import RANKS
from common.command_line import shortened
from common.declarations import ROOT
from common.record import files
from common.record.definition import Record

RESULTS = ROOT / "results" / "lessons"


def arguments(ranks: str) -> tuple[str, list[str]]:
    """Returns the number of ranks and the options on the command line of a lesson; without a number, `ranks`."""
    number, options = (sys.argv[1], sys.argv[2:]) if sys.argv[1:2] and sys.argv[1].isdecimal() else (ranks, sys.argv[1:])
    if RANKS.problem(float(number)):
        refuse(f"{shortened(number)} is no number of ranks; give one from {RANKS.at_least} to {RANKS.at_most}")
    return number, options


def refuse(mistake: str) -> NoReturn:
    """Ends the process where a lesson cannot be started so."""
    print(f"error: {mistake}", file=sys.stderr)
    sys.exit(2)


def new_folder(name: str) -> Path:
    """Names a folder below results/lessons for the records of a lesson."""
    return RESULTS / f"{files.new_stamp()}-{name}"


def matrix(name: str, ranks: str, *training: str) -> list[Record]:
    """Returns the completed records of a matrix at a number of ranks, in a folder of its own below results/lessons.

    What follows the name of the lesson on the command line goes to the matrix too: first another number of ranks, if any, then options,
    which take precedence over `training`. Ends the process if no run completed.
    """
    ranks, options = arguments(ranks)
    folder = new_folder(name)
    status = subprocess.run(
        [sys.executable, "-m", "launch.matrix", ranks, *training, *options, "--results", str(folder)], cwd=ROOT, check=False
    ).returncode
    completed = [record for record in files.collect([folder])[0] if record.status == "ok"] if folder.exists() else []
    if not completed:
        sys.exit(status)
    return completed
