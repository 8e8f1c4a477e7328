"""The command: what it prints and writes, and its mistakes, each in one line with exit status 2 and before anything is written."""

import json

import pytest

from tests.launch.forecast.network.test_messages import collectives
from tests.launch.forecast.scaling.test_forecasts import record
from tests.support.mistakes import expect_refused
from tests.support.running import BIN, completed

# Stands for a file of launch.collectives that has another library.
NETWORK = "NETWORK.json"


def written(folder, records):
    for number, content in enumerate(records):
        (folder / f"{number}.json").write_text(json.dumps(content))
    return folder


def test_forecasts_are_printed_and_written(tmp_path):
    results = written(tmp_path, [record(1), record(2)])
    numbers, picture = tmp_path / "out" / "numbers.json", tmp_path / "out" / "picture.svg"
    numbers.parent.mkdir()
    arguments = (results, "--ranks", "16,1024", "--price", "0.05", "--json", numbers, "--picture", picture)
    # Not a fork: drawing starts threads.
    done = completed(BIN / "python", "-m", "launch.predict", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    for text in (
        "For a proposal: cnn, weak scaling, with ddp on",
        "Held out: cnn, weak scaling",
        "extrapolated",
        "Extra-P needs 5 sizes, and 2 were",
    ):
        assert text in done.stdout
    assert [forecast["num_ranks"] for forecast in json.loads(numbers.read_text())["forecasts"]] == [1, 2, 16, 1024]
    assert picture.read_text().startswith("<svg")


SIZES = [record(1), record(2)]
MISTAKES = [
    (SIZES, ["--ranks", "16,0"], "--ranks has 0; a number of ranks is a whole number of at least 1"),
    (SIZES, ["--ranks", "many"], "--ranks is many; give whole numbers separated by commas, such as 16,64,1024"),
    (SIZES, ["--ranks", ","], "--ranks is empty; give numbers of ranks, such as 16,64,1024"),
    (SIZES, ["--network", "/there/is/none.json"], "--network /there/is/none.json cannot be read (No such file or directory)"),
    (SIZES, ["--network", NETWORK], "has no all-reduce over gloo, only over mpi; measure that too"),
    (SIZES, ["--ranks-per-node", "0"], "--ranks-per-node is 0"),
    (SIZES, ["--price", "-1"], "--price is -1; it must be at least 0 and finite"),
    (SIZES, ["--json", "/there/is/none/f.json"], "--json /there/is/none/f.json cannot be written"),
    ([record(1)], [], "these records have one size of each backend; a forecast takes two or more"),
    ([], [], "there is no record in"),
]


@pytest.mark.parametrize(("records", "arguments", "message"), MISTAKES, ids=[message[:40] for *_, message in MISTAKES])
def test_a_mistake_is_one_line(records, arguments, message, tmp_path, tmp_path_factory):
    results, picture = written(tmp_path, records), tmp_path / "picture.svg"
    if NETWORK in arguments:
        arguments = ["--network", collectives(tmp_path_factory.mktemp("network"))]
    expect_refused(message, "launch.predict", results, "--picture", picture, *arguments)
    assert not picture.exists()


def test_records_are_needed():
    expect_refused("which records? Give files or folders, such as results/MACHINE", "launch.predict")
