"""A path that cannot be read or written, and an output that is full, are one line and exit status 2 in every program."""

import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from common.record import files
from tests.support.forked import run_module
from tests.support.made_records import made, typed
from tests.support.mistakes import expect_refused
from tests.support.running import BIN, ROOT, completed

# Read only after what is to be written has been checked.
RECORDS = "results/reference"
LONG = "x" * 300
NOBODY = 65534


@pytest.fixture
def closed_folder():
    """A folder without permissions in one that all may enter."""
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        folder = Path(parent, "closed")
        folder.mkdir(mode=0)
        yield folder


@pytest.mark.parametrize(
    "program",
    [
        ("launch.compare", RECORDS, "--csv", LONG),
        ("launch.matrix", "1", "--results", LONG),
        ("frameworks.single", "--run-id", LONG, "--results", "{folder}"),
    ],
)
def test_a_name_that_is_too_long_is_refused(program, tmp_path):
    expect_refused("File name too long", *(part.format(folder=tmp_path) for part in program))


def test_a_folder_that_may_not_be_entered_is_refused(closed_folder):
    command = (BIN / "python", "-m", "launch.compare", RECORDS, "--html", closed_folder / "page.html")
    if os.geteuid() == 0:
        on_the_way = (*closed_folder.parents, ROOT, *ROOT.parents)
        if not shutil.which("setpriv") or not all(path.stat().st_mode & stat.S_IXOTH for path in on_the_way):
            pytest.skip("no setpriv, or another user cannot reach these folders")
        as_nobody = ("setpriv", "--reuid", NOBODY, "--clear-groups")
        # Its library may lie where another user cannot read it.
        if completed(*as_nobody, BIN / "python", "-c", "").returncode:
            pytest.skip("another user cannot start this Python")
        command = (*as_nobody, *command)
    done = completed(*command, variables={"HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "Permission denied" in done.stderr


@pytest.fixture
def recorded(tmp_path):
    """The file of a record."""
    (record,) = typed([made()])
    files.write(tmp_path / "run.json", record)
    return tmp_path / "run.json"


@pytest.mark.parametrize("option", ["", "--help"])
def test_a_full_output_is_one_line(option, recorded):
    done = completed("bash", "-c", f"exec {BIN / 'python'} -m launch.compare {recorded} {option} > /dev/full")
    assert (done.returncode, done.stderr) == (2, "error: the output cannot be written (No space left on device)\n")


def test_an_export_that_fails_loses_no_other(recorded, tmp_path):
    (tmp_path / "full").symlink_to("/dev/full")
    exports = ("--csv", tmp_path / "full", "--markdown", tmp_path / "report.md")
    status, printed, error = run_module("launch.compare", recorded, *exports)
    assert (status, error) == (2, f"error: {tmp_path}/full was not written: No space left on device\n")
    assert printed
    assert (tmp_path / "report.md").read_text()


def test_an_error_is_one_line_of_printable_characters_whatever_the_path(tmp_path):
    assert run_module("launch.compare", tmp_path / "a\n\x1b[31mb")[::2] == (
        2, f"error: {tmp_path}/a  [31mb does not exist; give a record or a folder of records\n",
    )  # fmt: skip
