"""Everything that a machine with a GPU can show, in under ten minutes: tests/gpu.sh [FOLDER].

Its parts are files of pytest: agreement, breakdown, memory, profile and speed. A check that fails stops no other. The folder gets
summary.txt, summary.json, the records of all runs, what they printed, and traces. Exit status 1 where a check failed.
"""

import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest

from common import command_line
from common.command_line import Positional
from common.declarations import ROOT
from common.errors import UserError
from tests.gpu.plugin import Plugin
from tests.gpu.running import Session

# In this order: the last one fills the time that is left.
PARTS = ("agreement", "breakdown", "memory", "profile", "speed")
OPTIONS = ("--override-ini=addopts=", "-p", "no:cacheprovider", "-p", "no:terminal", "--rootdir", ROOT)


@dataclass(frozen=True)
class Arguments:
    """What is checked, and where the results go."""

    folder: Annotated[Path | None, Positional] = None
    """Folder to write to. Default: results/gpu-HOST-TIME."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """cpu: a rehearsal with small models."""
    minutes: float = 9.5
    """Time limit; what does not fit is skipped."""
    parts: str = ",".join(PARTS)
    """Parts, separated by commas."""
    backends: str | None = None
    """Only these, separated by commas. Default: every backend that can run here."""
    only: str | None = None
    """Only checks whose lines have this text, such as "transformer: fsdp"."""


def check_all(arguments):
    """Makes the checks and returns the exit status. Raises UserError, before anything is written, for what cannot work."""
    begun = time.monotonic()
    if unknown := [name for name in arguments.parts.split(",") if name not in PARTS]:
        raise UserError(f"there is no part {unknown[0]!r}; choose from: {', '.join(PARTS)}")
    if not arguments.minutes > 0:
        raise UserError(f"--minutes is {arguments.minutes:g}; it must be above 0")
    folder = arguments.folder or ROOT / "results" / f"gpu-{platform.node()}-{time.strftime('%Y%m%d-%H%M%S')}"
    seconds = 60 * arguments.minutes
    session = Session.begin(folder.absolute(), arguments.device, seconds, begun + seconds, arguments.backends)
    folder.mkdir(parents=True, exist_ok=True)
    print(session.about, flush=True)
    files = [Path(__file__).parent / f"{name}.py" for name in arguments.parts.split(",")]
    return int(pytest.main([str(part) for part in (*OPTIONS, *files)], [Plugin(session, begun, arguments.only)]))


if __name__ == "__main__":
    command_line.main(check_all, Arguments, "tests/gpu.sh", __doc__.splitlines()[0])
