"""Fixtures that more than one test file uses."""

import shutil
import subprocess

import pytest

from tests.running import ROOT


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """A copy of this checkout, uncommitted changes and all, with the same environment: a place for tests to write in."""
    copy = tmp_path_factory.mktemp("checkout") / "tandem"
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    (copy / ".venv").symlink_to(ROOT / ".venv")
    return copy
