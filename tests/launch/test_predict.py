"""The command: what it prints and writes, and its mistakes, each in one line with exit status 2 and before anything is written."""

import json

import pytest

from tests.launch.forecast.network.test_messages import collectives
from tests.launch.forecast.scaling.test_forecasts import record
from tests.support.mistakes import expect_refused
from tests.support.running import BIN, completed


@pytest.fixture
def results(tmp_path):
    """A folder with records of two sizes."""
    folder = tmp_path / "results"
    folder.mkdir()
    for num_ranks in (1, 2):
        (folder / f"{num_ranks}.json").write_text(json.dumps(record(num_ranks)))
    return folder


def test_forecasts_are_printed_and_written(results, tmp_path):
    numbers, picture = tmp_path / "numbers.json", tmp_path / "picture.svg"
    arguments = (results, "--ranks", "16,1024", "--price", "0.05", "--json", numbers, "--picture", picture)
    # Not a fork: drawing starts threads.
    done = completed(BIN / "python", "-m", "launch.predict", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    for text in (
        "For a proposal: cnn, weak scaling, with ddp on",
        "Held out: cnn, weak scaling",
        "extrapolated",
    ):
        assert text in done.stdout
    assert [forecast["num_ranks"] for forecast in json.loads(numbers.read_text())["forecasts"]] == [1, 2, 16, 1024]
    assert picture.read_text().startswith("<svg")


MISTAKES = [
    (["--ranks", "16,0"], "--ranks has 0; it must be at least 1 and at most 16777216"),
    (["--network", "/there/is/none.json"], "--network /there/is/none.json cannot be read (No such file or directory)"),
    (["--ranks-per-node", "0"], "--ranks-per-node is 0"),
    (["--price", "-1"], "--price is -1; it must be at least 0 and at most 1000000000"),
    (["--json", "/there/is/none/f.json"], "--json /there/is/none/f.json cannot be written"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_a_mistake_is_one_line(arguments, message, results, tmp_path):
    expect_refused(message, "launch.predict", results, "--picture", tmp_path / "picture.svg", *arguments)
    assert not (tmp_path / "picture.svg").exists()


def test_a_network_of_another_library_is_refused(results, tmp_path):
    message = "has no all-reduce over gloo, only over mpi; measure that too"
    expect_refused(message, "launch.predict", results, "--network", collectives(tmp_path))


def test_records_are_needed():
    expect_refused("which records? Give files or folders, such as results/MACHINE", "launch.predict")
