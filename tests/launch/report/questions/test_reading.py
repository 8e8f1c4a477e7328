"""What reading from disk costs, by format; which formats train the same; and what is compared apart."""

import pytest

from launch.report import comparable, entries
from tests.support.answers import lines, section
from tests.support.made_records import made, typed

MB = 10**6


def stored(data_format, *, num_ranks=2, wait=0.4, samples=20, read=30, disk=6, order="global", digest="d" * 64, settings=None, **changes):
    """A record of a run that read its data from disk: seconds and megabytes of each rank, in 4 steps of 2 seconds."""
    reading = {
        "sample_order": order, "num_steps": 4, "wait_seconds_by_rank": [wait] * num_ranks,
        "sample_bytes_by_rank": [samples * MB] * num_ranks, "num_opens_by_rank": [7, 8][:num_ranks],
        "read_bytes_by_rank": [None if read is None else read * MB] * num_ranks, "disk_bytes_by_rank": [disk * MB] * num_ranks,
        "budget_bytes": 2**30, "stored_bytes": 50 * MB, "convert_seconds": 3.0,
    }  # fmt: skip
    settings = {"data_format": data_format} | (settings or {})
    return made(num_ranks=num_ranks, reading=reading, settings=settings, workload_digest=digest, **changes)


def test_a_table_has_a_row_for_each_format_and_one_for_memory():
    rows = lines([made(num_ranks=2), stored("hdf5"), stored("npy", settings={"num_workers": 2, "drop_caches": "epoch"})], "reading")
    assert [(row["format"], row["workers"], row["caches dropped"]) for row in rows] == [
        ("hdf5", 0, "none"), ("memory", 0, "none"), ("npy", 2, "epoch"),
    ]  # fmt: skip
    from_disk = rows[0]
    assert from_disk["data wait per step (ms)"] == pytest.approx(100)
    assert from_disk["share of the step (%)"] == pytest.approx(5)
    assert (from_disk["samples per rank (MB/s)"], from_disk["samples in all (MB/s)"]) == pytest.approx((2.5, 5))
    assert (from_disk["read over samples"], from_disk["from the page cache (%)"]) == pytest.approx((1.5, 80))
    assert (from_disk["files opened per rank"], from_disk["conversion (s)"], from_disk["on disk (MB)"]) == (8, 3, 50)
    assert rows[1]["samples per rank (MB/s)"] is None
    # What Linux does not tell is not known.
    (row,) = lines([stored("hdf5", read=None)], "reading")
    assert (row["read over samples"], row["from the page cache (%)"]) == (None, None)


@pytest.mark.parametrize(
    ("changes", "percent", "megabytes"),
    [
        ({"train_seconds": [None, 4.0]}, pytest.approx(10), pytest.approx(5)),
        # A resumed run with no epoch left to train.
        ({"train_seconds": [], "step_seconds": [], "resumed_after_epochs": 2, "time_to_solution_seconds": None}, None, None),
    ],
)
def test_runs_with_unknown_seconds_have_a_row(changes, percent, megabytes):
    (row,) = lines([stored("hdf5", **changes)], "reading")
    assert (row["share of the step (%)"], row["samples per rank (MB/s)"]) == (percent, megabytes)


LOSSES = "cnn, weak scaling: the losses with"


@pytest.mark.parametrize(
    ("record", "sentences"),
    [
        (stored("hdf5"), [f"{LOSSES} hdf5, memory, npy are equal to the bit."]),
        (stored("hdf5", losses=[3.0, 2.0, 1.0, 0.5000001]), [f"{LOSSES} hdf5, memory, npy are not equal."]),
        (
            stored("tfrecord", order="files", digest="e" * 64, losses=[3.0, 2.5, 1.0, 0.5]),
            [
                "cnn, weak scaling: tfrecord can be read in order only, so the samples have another order: compare the times, not the "
                "losses.",
                f"{LOSSES} memory, npy are equal to the bit.",
            ],
        ),
    ],
)
def test_formats_with_one_order_are_compared_by_their_losses_and_others_by_time_only(record, sentences):
    assert section([made(num_ranks=2), stored("npy"), record], "reading").sentences == sentences


def test_runs_that_read_in_different_ways_are_compared_apart():
    ahead = {"num_workers": 2}
    records = [
        made(num_ranks=2), stored("hdf5"), stored("hdf5", settings=ahead), stored("hdf5", settings=ahead | {"drop_caches": "once"}),
        stored("tfrecord", order="files", digest="e" * 64), stored("hdf5", repeat=1, settings={"data_budget": 5.0}),
    ]  # fmt: skip
    comparable.check(typed(records))
    comparisons = entries.comparisons(typed(records))
    assert [(comparison.name, sum(len(entry.records) for entry in comparison.entries)) for comparison in comparisons] == [
        ("cnn, weak scaling", 1), ("cnn, weak scaling, hdf5", 2), ("cnn, weak scaling, hdf5, 2 workers of 2 batches", 1),
        ("cnn, weak scaling, hdf5, 2 workers of 2 batches, caches dropped", 1), ("cnn, weak scaling, tfrecord", 1),
    ]  # fmt: skip
