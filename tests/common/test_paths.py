"""A path that cannot be read or written, and an output that is full, are one line and exit status 2 in every program."""

import pytest

from common.record import files
from tests.support.forked import run_module
from tests.support.made_records import made, typed
from tests.support.mistakes import expect_refused
from tests.support.running import BIN, completed

# Read only after what is to be written has been checked.
RECORDS = "results/reference"
LONG = "x" * 300


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
