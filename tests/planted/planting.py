"""A copy of this checkout in which a fault is planted, and the tests that run there."""

import contextlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import psutil

from tests.planted import faults
from tests.planted.faults import Fault
from tests.support.running import copied

# Of the tests of all faults.
TIME_LIMIT_SECONDS = 3600


def isolated_copy(folder: Path) -> Path:
    """Copies this checkout into a folder. The copy is a repository, since some tests copy their checkout in their turn."""
    copy = copied(folder)
    subprocess.run(["git", "init", "--quiet"], cwd=copy, check=True)
    subprocess.run(["git", "add", "--all"], cwd=copy, check=True)
    return copy


@contextlib.contextmanager
def planted(copy: Path, fault: Fault):
    """Within this context a fault is in the copy, which is afterwards as it was."""
    path, text = faults.planted(fault, faults.product())
    (copy / path).write_text(text)
    try:
        yield
    finally:
        (copy / path).write_text(faults.product()[path])


def tested(copy: Path, node_ids: Iterable[str]) -> tuple[int, str]:
    """Runs tests in the copy until one fails, and leaves no process of them behind.

    Returns pytest's exit status, 124 at the time limit, and the end of what it printed.
    """
    options = ("--quiet", "--tb=no", "-rfE", "-x", "-p", "no:cacheprovider", "--basetemp", copy.parent / "basetemp", "-m", "")
    # A folder that pytest (9.1.1) comes back to after another no longer has the fixtures of its conftest.py.
    of_one_folder_together = sorted(node_ids)
    command = ["timeout", TIME_LIMIT_SECONDS, copy / ".venv" / "bin" / "python", "-m", "pytest", *options, *of_one_folder_together]
    # Python compares the size of a file and its time in seconds with those in its cache, which here may be the same for other content.
    environ = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    # Those of the pytest that runs this do not concern it.
    environ = {name: value for name, value in environ.items() if not name.startswith("PYTEST_")}
    try:
        with (copy.parent / "printed").open("w+", errors="replace") as printed:
            done = subprocess.run(
                [str(part) for part in command], cwd=copy, env=environ, stdout=printed, stderr=subprocess.STDOUT, check=False
            )
            printed.seek(0)
            return done.returncode, printed.read()[-5000:]
    finally:
        _end_left(copy.parent)


def _end_left(folder: Path) -> None:
    """Ends the processes that were started somewhere below the folder."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if Path(process.cwd()).is_relative_to(folder):
                process.kill()
