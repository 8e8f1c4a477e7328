"""Converted data as a run reads it: the samples of data in memory, a batch at a time, and nothing but what was written."""

import fcntl
import json
import shutil
from typing import get_args

import numpy as np
import pytest

from common import workloads
from common.config import FileFormat, Settings
from common.data import datasets, stored
from launch.convert_data import Conversion, run
from tests.support import mistakes, small_data
from tests.support.mistakes import refusal
from tests.support.running import train_in_turn

FORMATS = get_args(FileFormat)


def load(**settings):
    """The data that runs with these settings train."""
    return datasets.loader(workloads.resolve(Settings(**settings), 1))()


def convert(folder, data_format, workload="cnn", **settings):
    """Converts a workload's data into a folder; returns the settings that read it from there."""
    assert run(Conversion(workload, data_format, folder, **settings)) == 0
    return {"workload": workload, "data_format": data_format, "data_dir": folder} | {
        name: value for name, value in settings.items() if name != "data_dir"
    }


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """Returns {format: settings that read the small digits in it, `memory` among them}."""
    folder = tmp_path_factory.mktemp("digits")
    small_data.write_digits(folder / "mnist", small_data.NUM_TRAIN)
    in_memory = {"dataset": "mnist", "data_dir": folder / "mnist"}
    return {"memory": in_memory} | {name: convert(folder / name, name, **in_memory) for name in FORMATS}


def assert_same_samples(samples, expected):
    assert len(samples) == len(expected)
    np.testing.assert_array_equal(samples.num_losses, expected.num_losses)
    order = np.random.default_rng(0).permutation(len(samples))
    for indices in (order[:1], order[1:9], np.append(order[:7], order[0])) if len(order) else ():
        for array, values in zip(samples.batch(indices), expected.batch(indices), strict=True):
            assert array.dtype == values.dtype
            np.testing.assert_array_equal(array, values)


@pytest.mark.parametrize("name", FORMATS)
def test_the_samples_are_those_in_memory(name, digits):
    in_memory, on_disk = load(**digits["memory"]), load(**digits[name])
    assert_same_samples(on_disk.train, in_memory.train)
    assert_same_samples(on_disk.test, in_memory.test)
    assert on_disk.digest == in_memory.digest


def test_hdf5_is_read_without_a_lock(digits):
    """Parallel file systems may refuse one, as here another program's lock does."""
    with (digits["hdf5"]["data_dir"] / stored.HDF5).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert len(load(**digits["hdf5"]).train)


@pytest.mark.parametrize(("workload", "name"), [*(("transformer", name) for name in FORMATS), ("resnet50", FORMATS[-1])])
def test_texts_and_data_of_which_none_is_held_out_are_read_too(workload, name, tmp_path):
    on_disk, in_memory = load(**convert(tmp_path / "data", name, workload)), load(workload=workload)
    assert_same_samples(on_disk.train, in_memory.train)
    assert_same_samples(on_disk.test, in_memory.test)


def test_data_of_another_run_is_refused(digits):
    folder = digits["npy"]["data_dir"]
    for changed, message in [
        ({"data_format": "hdf5"}, "was converted with --data-format npy, and this run has hdf5; convert the data of this run"),
        ({"dataset": "digits"}, "was converted with --dataset mnist, and this run has digits; convert"),
        ({"workload": "transformer", "dataset": None}, "was converted with --workload cnn, and this run has transformer; convert"),
        ({"precision": "fp64"}, "has samples of float32, and --precision fp64 needs float64; convert them with --precision fp64"),
    ]:
        assert refusal(load, **digits["npy"] | changed).startswith(f"--data-dir {folder} {message}")
    assert refusal(load, data_format="npy") == "--data-format npy requires --data-dir, the folder that launch.convert_data wrote"


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_data_is_refused_in_one_line(name, digits, tmp_path):
    settings = digits[name] | {"data_dir": tmp_path / "copy"}
    shutil.copytree(digits[name]["data_dir"], tmp_path / "copy")
    source, largest = tmp_path / "copy" / "source.json", max((tmp_path / "copy").iterdir(), key=lambda path: path.stat().st_size)
    content = largest.read_bytes()
    for damaged in (content[:50], content[:-50], b""):
        largest.write_bytes(damaged)
        assert "cannot be read (" in refusal(load, **settings)
    largest.unlink()
    assert "; write it with .venv/bin/python -m launch.convert_data into an empty folder" in refusal(load, **settings)
    largest.write_bytes(content)
    for damaged in ("{", "[]", "[" * 100_000, json.dumps({"data_format": name})):
        source.write_text(damaged)
        assert f"--data-dir {tmp_path}/copy cannot be read (" in refusal(load, **settings)
    source.unlink()
    assert refusal(load, **settings).startswith(f"{source} is not there, so the data is not complete; write it with")


def test_a_folder_with_anything_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert refusal(convert, tmp_path, "npy") == f"{tmp_path} has files; give a new or an empty folder"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    text = refusal(convert, tmp_path / "notes.txt" / "data", "npy")
    assert text.startswith(f"cannot write to {tmp_path}/notes.txt/data (Not a directory)")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnn", "npy"], "there is no workload 'rnn'"),
        (["cnn", "zip"], "invalid choice: 'zip'"),
        (["cnn", "npy", "--dataset", "mnist"], "--dataset mnist requires --data-dir"),
    ],
)
def test_a_mistake_is_said_in_one_line_before_anything_is_written(arguments, message, tmp_path):
    mistakes.expect_refused(message, "launch.convert_data", *arguments[:2], tmp_path / "data", *arguments[2:])
    assert not (tmp_path / "data").exists()


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("backend", "num_ranks", "names"),
    [("ddp", 2, ("memory", "npy", "hdf5", "hdf5 ahead")), ("horovod_keras", 1, ("memory", "hdf5 ahead"))],
    ids=["ddp", "horovod_keras"],
)
def test_runs_from_disk_have_the_losses_of_data_in_memory_to_the_bit(backend, num_ranks, names, digits, tmp_path):
    arguments = []
    for name in names:
        read = digits[name.split()[0]] | ({"num_workers": 2} if name == "hdf5 ahead" else {})
        options = [word for key, value in read.items() for word in ("--" + key.replace("_", "-"), value)]
        arguments.append((backend, "none", "--small", "--batch-size", 4, "--epochs", 2, "--no-stop-at-target", *options))
    records = {name: record for name, (record, _) in zip(names, train_in_turn(num_ranks, tmp_path, arguments), strict=True)}
    assert [record["error"] for record in records.values()] == [None] * len(names)
    in_memory = records.pop("memory")
    assert in_memory["reading"] is None
    for record in records.values():
        for key in ("losses", "accuracies", "parameter_digests", "workload_digest"):
            assert record[key] == in_memory[key]
        num_steps = len(record["losses"])
        sample_bytes = num_steps * 4 * (28 * 28 * 4 + 8)
        assert (record["reading"]["num_steps"], record["reading"]["sample_bytes_by_rank"]) == (num_steps, [sample_bytes] * num_ranks)
        assert all(0 < seconds < 60 for seconds in record["reading"]["wait_seconds_by_rank"])
