"""Real runs on data from disk: losses equal to the bit at 2 ranks, in the same processes, and at 1 on TensorFlow; failures in one line."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from common.data import manifest
from common.data.formats import FORMATS
from tests.support import converted
from tests.support.converted import IN_ORDER
from tests.support.forked import run_module
from tests.support.running import BIN, ROOT, environ, train_in_turn

pytestmark = pytest.mark.matrix

ARGUMENTS = ("--batch-size", 4, "--epochs", 2, "--no-stop-at-target")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(the arguments that read the small digits from memory, {format: those that read them from disk})."""
    folder = tmp_path_factory.mktemp("digits")
    settings = converted.small_digits(folder)
    disk = {name: converted.convert(folder / name, name, **settings) for name in FORMATS}
    memory = ("--dataset", "mnist", "--data-dir", settings["data_dir"])
    return memory, {name: ("--dataset", "mnist", "--data-format", name, "--data-dir", path) for name, path in disk.items()}


@pytest.fixture(scope="module")
def at_two_ranks(folders, tmp_path_factory):
    """{what: (record, final parameters)} of ddp at 2 ranks."""
    memory, disk = folders
    ahead = ("--num-workers", 2, "--prefetch", 3)
    runs = {"memory": memory, **disk, "hdf5 ahead": (*disk["hdf5"], *ahead), "tfrecord ahead": (*disk["tfrecord"], "--num-workers", 1)}
    runs["files again"] = (*disk["files"], *ahead, "--drop-caches", "epoch")
    found = train_in_turn("ddp", 2, tmp_path_factory.mktemp("runs"), [("none", *ARGUMENTS, *each) for each in runs.values()])
    assert all(record["status"] == "ok" for record, _ in found), [record["error"] for record, _ in found]
    return dict(zip(runs, found, strict=True))


def digest(run):
    return run[0]["parameter_digests"][-1]


def test_the_losses_are_those_of_data_in_memory_to_the_bit(at_two_ranks):
    expected = at_two_ranks["memory"]
    for what in ("npy", "hdf5", "safetensors", "files", "hdf5 ahead", "files again"):
        record, _ = at_two_ranks[what]
        assert record["losses"] == expected[0]["losses"]
        assert record["accuracies"] == expected[0]["accuracies"]
        assert digest((record, None)) == digest(expected)
        assert record["workload_digest"] == expected[0]["workload_digest"]
        assert record["reading"]["sample_order"] == "global"


def test_formats_in_order_have_one_order_of_their_own(at_two_ranks):
    expected, *others = (at_two_ranks[what] for what in (*IN_ORDER, "tfrecord ahead"))
    assert expected[0]["losses"] != at_two_ranks["memory"][0]["losses"]
    assert expected[0]["workload_digest"] != at_two_ranks["memory"][0]["workload_digest"]
    assert expected[0]["reading"]["sample_order"] == "files"
    for record, _ in others:
        assert record["losses"] == expected[0]["losses"]
        assert record["workload_digest"] == expected[0]["workload_digest"]


def test_the_record_has_what_reading_took(at_two_ranks):
    assert at_two_ranks["memory"][0]["reading"] is None
    for what in ("npy", "hdf5 ahead", "files again", "webdataset"):
        found = at_two_ranks[what][0]["reading"]
        # Two epochs of 40 steps of 4 samples on each rank; a buffer is read to its end.
        assert found["num_steps"] == 80
        assert found["sample_bytes_by_rank"] == [2 * 40 * 4 * (28 * 28 * 4 + 8)] * 2
        assert all(found["sample_bytes_by_rank"][rank] <= found["read_bytes_by_rank"][rank] for rank in range(2))
        assert all(0 < seconds < 60 for seconds in found["wait_seconds_by_rank"])
    opens = {what: run[0]["reading"]["num_opens_by_rank"] for what, run in at_two_ranks.items() if run[0]["reading"]}
    assert opens["files"] == [320, 320]
    assert max(opens["npy"]) <= 2 * 2 * 7
    assert sum(opens["webdataset"]) <= 2 * (7 + 1)


def test_at_four_ranks_the_losses_are_those_of_data_in_memory_too(folders, tmp_path):
    memory, disk = folders
    once = ("--batch-size", 4, "--epochs", 1, "--no-stop-at-target", "--steps-per-epoch", 5)
    random_access = [disk[name] for name in FORMATS if name not in IN_ORDER]
    runs = [memory, *random_access, *(disk[name] for name in IN_ORDER)]
    found = [record for record, _ in train_in_turn("ddp", 4, tmp_path, [("none", *once, *each) for each in runs])]
    assert [record["status"] for record in found] == ["ok"] * len(runs)
    expected, *others = (record["losses"] for record in found)
    assert others[: len(random_access)] == [expected] * len(random_access)
    assert others[-1] == others[-2] != expected


def test_a_run_that_is_killed_within_an_epoch_goes_on_from_the_one_before(at_two_ranks, folders, tmp_path):
    _, disk = folders
    command = (
        *(BIN / "mpiexec", "-n", 2, BIN / "python", "-m", "frameworks.ddp", *ARGUMENTS, *disk["hdf5"], "--num-workers", 1),
        *("--no-step-breakdown", "--results", tmp_path, "--machine", "here", "--checkpoint-dir", tmp_path / "kept"),
    )
    first, again = ([str(word) for word in (*command, "--run-id", name)] for name in ("first", "again"))
    with subprocess.Popen(first, cwd=ROOT, env=environ(), stdout=subprocess.DEVNULL) as run:
        while not list(tmp_path.glob("kept/**/*.safetensors")) and run.poll() is None:
            time.sleep(0.01)
        for process in (one := psutil.Process(run.pid), *one.children(recursive=True)):
            process.kill()
    assert json.loads((tmp_path / "here" / "first.json").read_text())["status"] == "started"
    data = Path(disk["hdf5"][-1])
    manifest.expect_whole(data, manifest.read(data))
    subprocess.run([*again, "--resume"], cwd=ROOT, env=environ(), check=True, capture_output=True)
    record, expected = json.loads((tmp_path / "here" / "again.json").read_text()), at_two_ranks["hdf5"]
    assert (record["status"], record["resumed_after_epochs"]) == ("ok", 1)
    assert record["losses"] == expected[0]["losses"][40:]
    assert digest((record, None)) == digest(expected)


def test_a_tensorflow_backend_reads_the_same(folders, tmp_path):
    memory, disk = folders
    runs = [memory, (*disk["hdf5"], "--num-workers", 1), disk["npy"], (*disk["webdataset"], "--num-workers", 1), disk["tfrecord"]]
    found = train_in_turn("horovod_keras", 1, tmp_path, [("none", *ARGUMENTS, *each) for each in runs])
    in_memory, hdf5, npy, webdataset, tfrecord = (record["losses"] for record, _ in found)
    assert in_memory == hdf5 == npy
    assert webdataset == tfrecord != in_memory


def test_a_file_that_is_damaged_in_place_is_found_when_it_is_read(folders, tmp_path):
    _, disk = folders
    *arguments, source = disk["hdf5"]
    shutil.copytree(source, tmp_path / "data")
    path = tmp_path / "data" / "train-00003.h5"
    before = path.stat()
    # With its size and time, as a disk damages it.
    path.write_bytes(path.read_bytes()[:2000].ljust(before.st_size, b"\0"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    ((record, _),) = train_in_turn("ddp", 2, tmp_path / "runs", [("none", *ARGUMENTS, *arguments, tmp_path / "data")])
    assert record["status"] == "failed"
    assert record["error"].startswith(f"{tmp_path}/data/train-00003.* cannot be read (")


def test_a_run_refuses_data_that_is_not_there_whole(folders, tmp_path):
    _, disk = folders
    *arguments, source = disk["hdf5"]
    shutil.copytree(source, tmp_path / "data")
    (tmp_path / "data" / "train-00003.h5").unlink()
    status, _, error = run_module("frameworks.single", *arguments, tmp_path / "data", "--results", tmp_path / "results")
    assert (status, error.count("\n")) == (2, 1)
    assert error.startswith(f"error: {tmp_path}/data/train-00003.h5 cannot be read (No such file or directory); write it with")
    assert not (tmp_path / "results").exists()
