"""Plants faults in a copy of this checkout, one after the other, and says which test catches each.

python -m tests.planted [NAME…]

The tests are first run without any fault, and must pass. Exit status 0: every fault was caught; 1: one was not, or does not apply; 2: a
mistake in the arguments, or a test fails without a fault; 130: interrupted.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
import tyro

from common import command_line
from common.errors import UserError
from launch.trace import build
from tests.planted import faults
from tests.support.running import ROOT, copied

PROGRAM = "python -m tests.planted"
TIME_LIMIT_SECONDS = 1200
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Arguments:
    """Which faults to plant."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names of faults. Default: all."""
    list: bool = False
    """Print the names of the faults and what each does, and run nothing."""


def run(arguments):
    """Plants the faults and prints a line for each; returns the exit status."""
    chosen = faults.chosen(arguments.names)
    if arguments.list:
        width = max(len(fault.name) for fault in chosen)
        print("\n".join(f"{fault.name:<{width}}  {fault.what}" for fault in chosen))
        return 0
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = isolated_copy(Path(folder).resolve())
        print("running the tests without a fault", file=sys.stderr, flush=True)
        status, printed = tested(copy, *dict.fromkeys(test for fault in chosen for test in faults.node_ids(fault)))
        if status:
            raise UserError(f"these tests do not pass without a fault (exit status {status}):\n{printed}")
        num_caught = sum(plant(copy, fault) for fault in chosen)
    print(f"{num_caught} of {len(chosen)} faults were caught, in {time.monotonic() - begun:.0f} s")
    return int(num_caught < len(chosen))


def isolated_copy(folder):
    """A copy of this checkout whose tests change nothing outside of the folder.

    Its environment is this one's, but for the interposer, which tests build anew where its sources have changed. It is a repository,
    since some tests copy their checkout in their turn.
    """
    copy = copied(folder)
    environment = copy / ".venv"
    environment.unlink()
    (environment / "lib").mkdir(parents=True)
    for path in [*(ROOT / ".venv").iterdir(), *(ROOT / ".venv" / "lib").iterdir()]:
        in_copy = environment / path.relative_to(ROOT / ".venv")
        if path.name == build.NAME:
            shutil.copy2(path, in_copy)
        elif not in_copy.exists():
            in_copy.symlink_to(path)
    subprocess.run(["git", "init", "--quiet"], cwd=copy, check=True)
    subprocess.run(["git", "add", "--all"], cwd=copy, check=True)
    return copy


def plant(copy, fault):
    """Whether a fault is caught, which is printed in a line; the copy is afterwards as it was."""
    print(f"planting {fault.name}", file=sys.stderr, flush=True)
    try:
        place, planted = faults.planted(fault, faults.product())
    except UserError as problem:
        print(f"{problem}", flush=True)
        return False
    (copy / place).write_text(planted)
    begun = time.monotonic()
    try:
        status, printed = tested(copy, "-x", *faults.node_ids(fault))
    finally:
        (copy / place).write_text(faults.product()[place])
    failed = FAILED.findall(printed)
    outcome = f"caught by {failed[0]}" if failed else f"NOT CAUGHT (exit status {status})"
    print(f"{fault.name}: {place}: {outcome}, {time.monotonic() - begun:.1f} s", flush=True)
    return bool(failed)


def tested(copy, *arguments):
    """(exit status, the end of what was printed) of pytest in the copy, 124 at the time limit; no process of it is left behind."""
    options = ("--quiet", "--tb=no", "-rfE", "-p", "no:cacheprovider", "--basetemp", copy.parent / "basetemp", "-m", "")
    command = ["timeout", TIME_LIMIT_SECONDS, copy / ".venv" / "bin" / "python", "-m", "pytest", *options, *arguments]
    # Python compares the size of a file and its time in seconds with those in its cache, which here may be the same for other content.
    environ = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    try:
        with (copy.parent / "printed").open("w+", errors="replace") as printed:
            done = subprocess.run(
                [str(part) for part in command], cwd=copy, env=environ, stdout=printed, stderr=subprocess.STDOUT, check=False
            )
            printed.seek(0)
            return done.returncode, printed.read()[-5000:]
    finally:
        end_left(copy.parent)


def end_left(folder):
    """Ends the processes that were started somewhere below the folder."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if Path(process.cwd()).is_relative_to(folder):
                process.kill()


if __name__ == "__main__":
    command_line.main(run, Arguments, PROGRAM, __doc__.splitlines()[0])
