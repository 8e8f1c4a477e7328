"""The command: what it prints and writes, and its mistakes, each in one line with exit status 2 and before anything is written."""

import json

import pytest

from tests.launch.forecast.network.test_messages import collectives
from tests.launch.forecast.scaling.test_forecasts import record
from tests.support.forked import run_module
from tests.support.mistakes import expect_refused


@pytest.fixture
def results(tmp_path):
    """A folder with records of two sizes."""
    folder = tmp_path / "results"
    folder.mkdir()
    for num_ranks in (1, 2):
        (folder / f"{num_ranks}.json").write_text(json.dumps(record(num_ranks)))
    return folder


@pytest.mark.parametrize(("ranks", "sizes"), [((), [1, 2, 4, 8, 16, 32]), (("--ranks", "16,32"), [1, 2, 16, 32])])
def test_forecasts_are_printed_and_written(ranks, sizes, results, tmp_path):
    numbers = tmp_path / "numbers.json"
    status, output, error = run_module("launch.predict", results, "--json", numbers, *ranks)
    assert (status, error) == (0, "")
    for text in (
        "For a proposal: cnn, weak scaling, with ddp on",
        "Held out: cnn, weak scaling",
    ):
        assert text in output
    assert [forecast["num_ranks"] for forecast in json.loads(numbers.read_text())["forecasts"]] == sizes


MISTAKES = [
    (["--ranks", "16,33"], "33 ranks are more than 16 times the 2 that were measured; ask for 32 at most, or measure more"),
    (["--ranks", "16,0"], "--ranks has 0; it must be at least 1 and at most 16777216"),
    (["--network", "/there/is/none.json"], "--network /there/is/none.json cannot be read (No such file or directory)"),
    (["--ranks-per-node", "0"], "--ranks-per-node is 0"),
    (["--json", "/there/is/none/f.json"], "--json /there/is/none/f.json cannot be written"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_a_mistake_is_one_line(arguments, message, results, tmp_path):
    expect_refused(message, "launch.predict", results, "--json", tmp_path / "numbers.json", *arguments)
    assert not (tmp_path / "numbers.json").exists()


def test_a_network_of_another_library_is_refused(results, tmp_path):
    message = "has no all-reduce over gloo, only over mpi; measure that too"
    expect_refused(message, "launch.predict", results, "--network", collectives(tmp_path))


def test_records_are_needed():
    expect_refused("which records? Give files or folders, such as results/MACHINE", "launch.predict")
