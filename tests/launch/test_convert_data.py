"""Conversion: whole or not there, however it ends; it goes on where it was; and folders with anything else are left alone."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from common import workloads
from common.config import Settings
from common.data import datasets, image_folders, manifest, stored_samples
from common.data.formats import FORMATS
from common.errors import UserError
from common.workloads import WORKLOADS
from launch.conversion import writing
from launch.conversion.writing import PLAN, Conversion
from tests.support import converted, mistakes
from tests.support.forked import run_module
from tests.support.running import BIN, ROOT, completed, environ
from tests.support.small_models import RESNET


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return converted.small_digits(tmp_path_factory.mktemp("digits"))


def refusal(folder, data_format="npy", **settings):
    """The text of the UserError of a conversion."""
    return mistakes.refusal(converted.convert, folder, data_format, **settings)


def content(folder):
    """{path: bytes} of all files but the manifest, which has their times."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*") if path.is_file() and path.name != manifest.NAME
    }  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_a_conversion_says_what_it_wrote_and_does_nothing_the_second_time(name, digits, tmp_path, capsys):
    folder = converted.convert(tmp_path / "data", name, **digits)
    written = manifest.read(folder)
    assert written.num_samples == {"train": 323, "test": 60}
    assert written.size_bytes == sum(map(len, content(folder).values()))
    assert f"383 samples, {written.size_bytes / 1e6:.1f} MB in {len(written.files)} files" in capsys.readouterr().out
    assert not list(folder.rglob("*.part"))
    assert not (folder / PLAN).exists()
    before = (folder / manifest.NAME).read_bytes()
    converted.convert(folder, name, **digits)
    assert "has this data already" in capsys.readouterr().out
    assert (folder / manifest.NAME).read_bytes() == before


def test_copies_follow_each_other_and_are_other_data(digits, tmp_path):
    data_dir = converted.convert(tmp_path / "data", "npy", copies=3, **digits)
    own = Settings(data_format="npy", data_dir=data_dir, dataset="mnist")
    found, plain = (datasets.loader(workloads.resolve(one, 1))() for one in (own, Settings(**digits)))
    assert (len(found.train), len(found.test)) == (3 * 323, 60)
    indices = np.array([[5], [323 + 5], [2 * 323 + 5]])
    for inputs, targets in found.train.batches(indices):
        np.testing.assert_array_equal(inputs, plain.train_inputs[[5]])
        np.testing.assert_array_equal(targets, plain.train_targets[[5]])
    assert found.digest != plain.digest


@pytest.mark.parametrize("copies", [1, 3])
def test_images_are_read_when_they_are_written_and_have_the_digest_of_those_in_memory(copies, tmp_path, monkeypatch):
    monkeypatch.setitem(WORKLOADS, "resnet50", WORKLOADS["resnet50"]._replace(model=RESNET))
    for number in range(10):
        path = tmp_path / "images" / "ab"[number // 5] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (60, 50), (20 * number, 0, 255)).save(path)
    own = {"dataset": "imagefolder", "data_dir": tmp_path / "images"}
    expected = datasets.loader(workloads.resolve(Settings(workload="resnet50", **own), 1))()
    # Where they would not fit into memory.
    monkeypatch.setattr(image_folders, "_expect_room", None)
    own |= {"file_size": 3 * 48 * 48 * 3 / stored_samples.MIB, "copies": copies}
    folder = converted.convert(tmp_path / "data", "npy", "resnet50", **own)
    found = Settings(workload="resnet50", dataset="imagefolder", data_format="npy", data_dir=folder)
    found = datasets.loader(workloads.resolve(found, 1))()
    assert (len(found.train), len(found.test)) == (10 * copies, 0)
    ((inputs, targets),) = found.train.batches(np.arange(10 * copies)[None])
    np.testing.assert_array_equal(inputs, np.tile(expected.train_inputs, (copies, 1, 1, 1)))
    np.testing.assert_array_equal(targets, np.tile(expected.train_targets, copies))
    assert (found.digest == expected.digest) == (copies == 1)
    # After an interruption those that are written are read from there.
    again = tmp_path / "again"
    with monkeypatch.context() as cut:
        cut.setattr(manifest, "write", lambda *_: sys.exit(9))
        with pytest.raises(SystemExit):
            converted.convert(again, "npy", "resnet50", **own)
    (again / "train-00001.inputs.npy").unlink()
    converted.convert(again, "npy", "resnet50", **own)
    assert content(again) == content(folder)
    assert manifest.read(again).data_digest == manifest.read(folder).data_digest


def loaded(folder, data_format, **settings):
    """The StoredDataset in a folder."""
    return datasets.loader(workloads.resolve(Settings(data_format=data_format, data_dir=folder, **settings), 1))()


def whole(samples):
    """The (inputs, targets) of all samples in their order."""
    (found,) = samples.batches(np.arange(len(samples))[None])
    return found


def test_stories_in_a_local_file_are_read_as_from_memory(tmp_path):
    (tmp_path / "stories").mkdir()
    (tmp_path / "stories" / "train.txt").write_text("Once there was a cat.\n" * 2000)
    own = {"workload": "transformer", "dataset": "tinystories"}
    expected = datasets.loader(workloads.resolve(Settings(data_dir=tmp_path / "stories", **own), 1))()
    folder = converted.convert(tmp_path / "data", "hdf5", data_dir=tmp_path / "stories", **own)
    found = loaded(folder, "hdf5", **own)
    assert found.digest == expected.digest
    for samples, part in ((found.train, expected.train), (found.test, expected.test)):
        for array, values in zip(whole(samples), whole(part), strict=True):
            np.testing.assert_array_equal(array, values)


def start(folder, name, digits):
    """A conversion of some 90 files, or twice as many in a process of its own."""
    settings = [word for key, value in digits.items() for word in ("--" + key.replace("_", "-"), value)]
    command = [BIN / "python", "-m", "launch.convert_data", "cnn", name, folder, "--file-size", "0.05", "--copies", "4", *settings]
    return subprocess.Popen([str(word) for word in command], cwd=ROOT, env=environ(), stderr=subprocess.PIPE, text=True)


def wait_for_files(folder, num_files, process):
    while len(list(folder.glob("train-*"))) < num_files:
        assert process.poll() is None
        time.sleep(0.002)


@pytest.mark.parametrize(
    ("name", "number"), [("npy", signal.SIGKILL), ("hdf5", signal.SIGKILL), ("files", signal.SIGKILL), ("files", signal.SIGINT)]
)
def test_a_conversion_that_is_killed_leaves_no_data_set_and_goes_on(name, number, digits, tmp_path):
    folder = tmp_path / "data"
    process = start(folder, name, digits)
    wait_for_files(folder, 20, process)
    process.send_signal(number)
    _, error = process.communicate(timeout=20)
    assert process.returncode == {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130}[number]
    assert error == ("interrupted\n" if number == signal.SIGINT else "")
    own = {"file_size": 0.05, "copies": 4, **digits}
    with pytest.raises(UserError, match="so it is no converted data set, or not yet"):
        manifest.read(folder)
    whole = {path: path.stat().st_mtime_ns for path in folder.glob("train-*") if path.suffix != ".part"}
    assert len(whole) >= 18
    assert number == signal.SIGKILL or not list(folder.glob("*.part"))
    assert "has another conversion (samples_per_file" in refusal(folder, name, **own | {"file_size": 1})
    converted.convert(folder, name, **own)
    if name != "npy":
        # Of a pair of files one may have been missing.
        assert {path: path.stat().st_mtime_ns for path in whole} == whole
    assert manifest.read(folder).convert_seconds is None
    at_once = converted.convert(tmp_path / "at-once", name, **own)
    assert manifest.read(at_once).convert_seconds > 0
    assert content(folder) == content(at_once)
    assert manifest.expect_whole(folder, manifest.read(folder))


def test_a_full_disk_is_said_in_one_line_and_the_conversion_goes_on_when_there_is_room(digits, tmp_path):
    folder, at_once = tmp_path / "disk", converted.convert(tmp_path / "at-once", "hdf5", **digits | {"file_size": 0.05})
    folder.mkdir()
    settings = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in digits.items())
    convert = f"{BIN}/python -m launch.convert_data cnn hdf5 {folder}/data --file-size 0.05 {settings}"
    # In a namespace of its own, with which the file system vanishes.
    script = (
        f"mount -t tmpfs -o size=600k none {folder} || exit 77; {convert}; echo status $?; ls {folder}/data; "
        f"mount -o remount,size=20m {folder}; {convert}; echo status $?; "
        f"diff -rq --exclude {manifest.NAME} {folder}/data {at_once} && ls {folder}/data"
    )
    done = completed("unshare", "-m", "sh", "-c", script)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("needs root, to mount a small file system")
    assert done.stderr == (
        f"error: {folder}/data: No space left on device; make room and give the same command again, which goes on from here\n"
    )
    first, second = done.stdout.split("status ")[1:]
    assert first.startswith("2\n")
    assert ".part" not in first
    assert manifest.NAME not in first
    assert "train-00001.h5" in first
    assert second.startswith("0\n")
    assert manifest.NAME in second


def test_a_folder_with_anything_else_is_left_alone(digits, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert refusal(tmp_path, **digits) == f"{tmp_path} has other files; give a new or an empty folder"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    folder = converted.convert(tmp_path / "data", "npy", **digits)
    before = content(folder)
    assert "has another conversion (data_format npy there and hdf5 here)" in refusal(folder, "hdf5", **digits)
    assert "has another conversion (samples_per_file" in refusal(folder, "npy", file_size=1, **digits)
    assert content(folder) == before
    assert refusal(tmp_path / "notes.txt" / "data", **digits).startswith(f"cannot write to {tmp_path}/notes.txt/data (Not a directory)")


def test_a_run_does_not_read_what_is_being_written_and_several_read_at_once_beside_a_conversion(digits, tmp_path):
    folder, own = tmp_path / "data", {"dataset": "mnist"}
    writing = start(folder, "hdf5", digits)
    wait_for_files(folder, 3, writing)
    with pytest.raises(UserError, match="so it is no converted data set, or not yet"):
        loaded(folder, "hdf5", **own)
    assert writing.wait(60) == 0
    before = content(folder)
    with ThreadPoolExecutor(3) as pool:
        reading = [pool.submit(lambda: whole(loaded(folder, "hdf5", **own).train)[0]) for _ in range(3)]
        assert start(folder, "hdf5", digits).wait(60) == 0
    first, *others = (one.result() for one in reading)
    assert len(first) == 4 * 323
    for one in others:
        np.testing.assert_array_equal(one, first)
    assert content(folder) == before


def test_two_conversions_into_one_folder_are_refused(digits, tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert refusal(tmp_path, **digits) == f"another process is converting into {tmp_path}; wait for it, or give another folder"
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnn", "npy"], "there is no workload 'rnn'"),
        (["cnn", "zip"], "invalid choice 'zip'"),
        (["cnn", "npy", "--copies", "0"], "--copies is 0; it must be at least 1"),
        (["cnn", "npy", "--file-size", "0"], "--file-size is 0; it must be above 0 and finite"),
        (["cnn", "npy", "--dataset", "mnist"], "--dataset mnist requires --data-dir"),
        (["cnn", "npy", "--dataset", "pydoc"], "--dataset pydoc is not for cnn"),
    ],
)
def test_a_mistake_is_said_in_one_line_before_anything_is_written(arguments, message, tmp_path):
    status, output, error = run_module("launch.convert_data", *arguments[:2], tmp_path / "data", *arguments[2:])
    assert (status, output, error.count("\n")) == (2, "", 1)
    assert message in error
    assert not (tmp_path / "data").exists()


def test_the_program_is_really_started(tmp_path):
    done = completed(BIN / "python", "-m", "launch.convert_data", "cnn", "npy", tmp_path / "data")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{tmp_path}/data: 1,797 samples, 5.7 MB in 5 files\n")
    assert writing.PLAN not in [path.name for path in (tmp_path / "data").iterdir()]
    assert Conversion("cnn", "npy", tmp_path).copies == 1
