"""The command line of a lesson, and the folder of its records."""

import sys
from pathlib import Path
from typing import NoReturn

from common.bounds import RANKS
from common.command_line import shortened
from common.declarations import ROOT
from common.record import files

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
