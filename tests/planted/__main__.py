"""Plants faults in a copy of this checkout, one after the other, and says which test catches each.

python -m tests.planted [NAME…]

The tests are first run without any fault: one that fails then catches nothing, and is left out. Exit status 0: every fault was caught;
1: one was not, or does not apply, or a test fails without a fault; 2: a mistake in the arguments; 130: interrupted.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

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
# What --all-tests runs. That every fault applies is not so where one is planted.
FAST_TESTS = ("-m", "not matrix", "--ignore", "tests/test_planted.py", "tests")


@dataclass(frozen=True)
class Arguments:
    """Which faults to plant, and which tests to run."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names of faults. Default: all."""
    list: bool = False
    """Print the names of the faults and what each does, and run nothing."""
    all_tests: bool = False
    """Run the fast tests (-m "not matrix") instead of those that have to catch the fault."""


class Result(NamedTuple):
    """How pytest ended: its exit status, None at the time limit; the tests that failed; seconds; and the end of what it printed."""

    status: int | None
    failed: list[str]
    seconds: float
    printed: str


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
        failing = without_faults(copy, chosen, arguments.all_tests)
        num_caught = sum(plant(copy, fault, arguments.all_tests, failing) for fault in chosen)
    print(f"{num_caught} of {len(chosen)} faults were caught, in {time.monotonic() - begun:.0f} s")
    return 0 if num_caught == len(chosen) and not failing else 1


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


def without_faults(copy, chosen, all_tests):
    """The tests that fail without a fault, which are printed. Raises UserError where pytest cannot run the tests."""
    print("running the tests without a fault", file=sys.stderr, flush=True)
    result = tested(copy, *(FAST_TESTS if all_tests else dict.fromkeys(test for fault in chosen for test in faults.node_ids(fault))))
    if result.status not in (0, 1):
        raise UserError(f"pytest cannot run these tests without a fault (exit status {result.status}):\n{result.printed}")
    for test in result.failed:
        print(f"{test} FAILS WITHOUT A FAULT", flush=True)
    return result.failed


def plant(copy, fault, all_tests, failing):
    """Whether a fault is caught, which is printed in a line; the copy is afterwards as it was."""
    print(f"planting {fault.name}", file=sys.stderr, flush=True)
    try:
        place, planted = faults.planted(fault, faults.product())
    except UserError as problem:
        print(f"{problem}", flush=True)
        return False
    left_out = [part for test in failing for part in ("--deselect", test)]
    (copy / place).write_text(planted)
    try:
        result = tested(copy, "-x", *left_out, *(FAST_TESTS if all_tests else faults.node_ids(fault)))
    finally:
        (copy / place).write_text(faults.product()[place])
    outcome = f"caught by {result.failed[0]}" if result.failed else f"NOT CAUGHT ({ending(result.status)})"
    print(f"{fault.name}: {place}: {outcome}, {result.seconds:.1f} s", flush=True)
    return bool(result.failed)


def ending(status):
    if status is None:
        return f"ended after {TIME_LIMIT_SECONDS} s"
    return "all tests passed" if status == 0 else f"pytest ended with exit status {status}"


def tested(copy, *arguments):
    """The Result of pytest in the copy; no process of it is left behind."""
    options = ("--quiet", "--tb=no", "-rfE", "-p", "no:cacheprovider", "--basetemp", copy.parent / "basetemp", "-m", "")
    command = [str(part) for part in (copy / ".venv" / "bin" / "python", "-m", "pytest", *options, *arguments)]
    # Python compares the size of a file and its time in seconds with those in its cache, which here may be the same for other content.
    environ = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    kept = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    begun = time.monotonic()
    process = subprocess.Popen(command, cwd=copy, env=environ, start_new_session=True, **kept)
    try:
        printed, _ = process.communicate(timeout=TIME_LIMIT_SECONDS)
        status = process.returncode
    except subprocess.TimeoutExpired:
        printed, status = "", None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        end_left(copy.parent)
    return Result(status, FAILED.findall(printed), time.monotonic() - begun, printed[-5000:])


def end_left(folder):
    """Ends the processes that were started somewhere below the folder."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if Path(process.cwd()).is_relative_to(folder):
                process.kill()


if __name__ == "__main__":
    command_line.main(run, Arguments, PROGRAM, __doc__.splitlines()[0])
