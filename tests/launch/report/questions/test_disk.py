"""What reading from disk costs; whether all formats train the same; and what is not compared with each other."""

import pytest

from launch.report import comparable, runs
from tests.support.answers import lines, section
from tests.support.made_records import made, typed

MB = 10**6


def stored(data_format, *, num_ranks=2, settings=None, **changes):
    """A record of a run that read its data from disk: each rank 20 MB in 4 steps of 2 seconds, of which it waited 0.1."""
    reading = {"num_steps": 4, "wait_seconds_by_rank": [0.4] * num_ranks, "sample_bytes_by_rank": [20 * MB] * num_ranks}
    settings = {"data_format": data_format} | (settings or {})
    return made(num_ranks=num_ranks, reading=reading, settings=settings, workload_digest="d" * 64, **changes)


def test_a_table_has_a_row_for_each_format_and_one_for_memory():
    rows = lines([made(num_ranks=2), stored("hdf5"), stored("npy", settings={"num_workers": 2})], "reading")
    assert [(row["format"], row["workers"]) for row in rows] == [("hdf5", 0), ("memory", 0), ("npy", 2)]
    assert rows[0]["data wait per step (ms)"] == pytest.approx(100)
    assert rows[0]["share of the step (%)"] == pytest.approx(5)
    assert rows[0]["samples read (MB/s)"] == pytest.approx(5)
    assert rows[1]["samples read (MB/s)"] is None


@pytest.mark.parametrize(
    ("changes", "percent", "megabytes"),
    [
        ({"train_seconds": [None, 4.0]}, pytest.approx(10), pytest.approx(10)),
        # A resumed run with no epoch left to train.
        ({"train_seconds": [], "step_seconds": [], "resumed_after_epochs": 2, "time_to_solution_seconds": None}, None, None),
    ],
)
def test_runs_with_unknown_seconds_have_a_row(changes, percent, megabytes):
    (row,) = lines([stored("hdf5", **changes)], "reading")
    assert (row["share of the step (%)"], row["samples read (MB/s)"]) == (percent, megabytes)


@pytest.mark.parametrize(("last_loss", "words"), [(0.5, "are equal to the bit"), (0.5000001, "are not equal")])
def test_formats_are_compared_by_their_losses(last_loss, words):
    records = [made(num_ranks=2), stored("npy"), stored("hdf5", losses=[3.0, 2.0, 1.0, last_loss])]
    assert section(records, "reading").sentences == [f"cnn, weak scaling: the losses with hdf5, memory, npy {words}."]


def test_runs_that_read_in_different_ways_are_compared_apart():
    records = typed([made(num_ranks=2), stored("hdf5"), stored("hdf5", settings={"num_workers": 2}), stored("hdf5", repeat=1)])
    comparable.check(records)
    assert [(comparison.name, sum(len(entry.records) for entry in comparison.entries)) for comparison in runs.comparisons(records)] == [
        ("cnn, weak scaling", 1), ("cnn, weak scaling, hdf5", 2), ("cnn, weak scaling, hdf5, 2 workers", 1),
    ]  # fmt: skip
