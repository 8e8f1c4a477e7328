"""Real runs on data from disk: losses equal to the bit at 2 ranks, on TensorFlow, and after a checkpoint."""

import pytest

from tests.support.converted import IN_ORDER
from tests.support.running import train_in_turn

pytestmark = pytest.mark.matrix

ARGUMENTS = ("--batch-size", 4, "--epochs", 2, "--no-stop-at-target")


@pytest.fixture(scope="module")
def arguments(digits):
    """Returns {format: the arguments that read the small digits in it, `memory` among them}."""
    disk = {name: ("--dataset", "mnist", "--data-format", name, "--data-dir", folder) for name, folder in digits.folders.items()}
    return {"memory": ("--dataset", "mnist", "--data-dir", digits.in_memory["data_dir"])} | disk


def trained(backend, num_ranks, folder, runs):
    """The records of runs with these arguments, one after the other."""
    records = [record for record, _ in train_in_turn(num_ranks, folder, [(backend, "none", *ARGUMENTS, *run) for run in runs])]
    assert all(record["status"] == "ok" for record in records), [record["error"] for record in records]
    return records


@pytest.fixture(scope="module")
def at_two_ranks(arguments, tmp_path_factory):
    """Returns {run: record} of ddp at 2 ranks."""
    folder, ahead = tmp_path_factory.mktemp("runs"), ("--num-workers", 2, "--prefetch", 3)
    checkpointed = (*arguments["hdf5"], *ahead, "--checkpoint-dir", folder / "kept")
    runs = arguments | {
        "hdf5 ahead": (*arguments["hdf5"], *ahead),
        "tfrecord ahead": (*arguments["tfrecord"], "--num-workers", 1),
        "npy again": (*arguments["npy"], *ahead, "--drop-caches", "epoch"),
        "hdf5 for one epoch": (*checkpointed, "--epochs", 1),
        "hdf5 resumed": (*checkpointed, "--resume"),
    }
    return dict(zip(runs, trained("ddp", 2, folder, runs.values()), strict=True))


def training_of(record):
    """What training gave, to the bit, and the digest of what was trained."""
    return record["losses"], record["accuracies"], record["parameter_digests"][-1], record["workload_digest"]


def test_the_losses_are_those_of_data_in_memory_to_the_bit(at_two_ranks):
    for name in ("npy", "hdf5", "hdf5 ahead", "npy again"):
        assert training_of(at_two_ranks[name]) == training_of(at_two_ranks["memory"])
        assert at_two_ranks[name]["reading"]["sample_order"] == "global"


def test_formats_in_order_have_one_order_of_their_own(at_two_ranks):
    first, *rest_of_records = (at_two_ranks[name] for name in (*IN_ORDER, "tfrecord ahead"))
    assert first["losses"] != at_two_ranks["memory"]["losses"]
    assert first["workload_digest"] != at_two_ranks["memory"]["workload_digest"]
    assert first["reading"]["sample_order"] == "files"
    for record in rest_of_records:
        assert training_of(record) == training_of(first)


def test_the_record_has_what_reading_took(at_two_ranks):
    readings = {name: record["reading"] for name, record in at_two_ranks.items()}
    assert readings.pop("memory") is None
    for name in ("npy", "hdf5 ahead", "npy again", "tfrecord"):
        reading = readings[name]
        # Two epochs of 40 steps of 4 samples on each rank; a buffer is read to its end.
        assert reading["num_steps"] == 80
        assert reading["sample_bytes_by_rank"] == [2 * 40 * 4 * (28 * 28 * 4 + 8)] * 2
        assert all(reading["sample_bytes_by_rank"][rank] <= reading["read_bytes_by_rank"][rank] for rank in range(2))
        assert all(0 < seconds < 60 for seconds in reading["wait_seconds_by_rank"])
    assert max(readings["npy"]["num_opens_by_rank"]) <= 2 * 2 * 7
    assert sum(readings["tfrecord"]["num_opens_by_rank"]) <= 2 * (7 + 1)


def test_tensorflow_reads_the_same_also_ahead(arguments, tmp_path):
    runs = {name: (*run, "--num-workers", int(name in ("hdf5", "tfrecord"))) for name, run in arguments.items()}
    records = dict(zip(runs, trained("horovod_keras", 1, tmp_path, runs.values()), strict=True))
    random_access = [record["losses"] for name, record in records.items() if name not in IN_ORDER]
    in_order = [records[name]["losses"] for name in IN_ORDER]
    assert random_access == [records["memory"]["losses"]] * (len(runs) - len(IN_ORDER))
    assert in_order == [in_order[0]] * len(IN_ORDER)
    assert in_order[0] != random_access[0]


def test_a_run_resumes_after_the_epoch_of_its_checkpoint(at_two_ranks):
    record, expected = at_two_ranks["hdf5 resumed"], at_two_ranks["hdf5"]
    assert record["resumed_after_epochs"] == 1
    assert record["losses"] == expected["losses"][40:]
    assert record["parameter_digests"][-1] == expected["parameter_digests"][-1]
