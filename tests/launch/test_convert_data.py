"""Conversion: whole or not there, however it ends; it goes on where it was; and folders with anything else are left alone."""

import fcntl
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from common.data import image_folders, manifest
from common.data.formats import FORMATS
from common.data.stored import MIB
from common.workloads import WORKLOADS
from launch.conversion.writing import PLAN
from tests.support import converted, mistakes
from tests.support.running import BIN, ROOT, completed, environ
from tests.support.small_models import RESNET


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return converted.small_digits(tmp_path_factory.mktemp("digits"))


def refusal(folder, data_format="npy", **settings):
    """The text of the UserError of a conversion."""
    return mistakes.refusal(converted.convert, folder, data_format, **settings)


def content(folder):
    """Returns {path: bytes} of all files but the manifest, which has their times."""
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


@pytest.mark.parametrize("copies", [1, 3])
def test_images_are_read_when_they_are_written_and_have_the_digest_of_those_in_memory(copies, tmp_path, monkeypatch):
    monkeypatch.setitem(WORKLOADS, "resnet50", WORKLOADS["resnet50"]._replace(model=RESNET))
    for number in range(10):
        path = tmp_path / "images" / "ab"[number // 5] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (60, 50), (20 * number, 0, 255)).save(path)
    images = {"dataset": "imagefolder", "data_dir": tmp_path / "images"}
    expected = converted.load(workload="resnet50", **images)
    # Where they would not fit into memory.
    monkeypatch.setattr(image_folders, "_expect_room", None)
    images |= {"file_size": 3 * 48 * 48 * 3 / MIB, "copies": copies}
    folder = converted.convert(tmp_path / "data", "npy", "resnet50", **images)
    stored = converted.load(workload="resnet50", dataset="imagefolder", data_format="npy", data_dir=folder)
    assert (len(stored.train), len(stored.test)) == (10 * copies, 0)
    ((inputs, targets),) = stored.train.batches(np.arange(len(stored.train))[None])
    np.testing.assert_array_equal(inputs, np.tile(expected.train.inputs, (copies, 1, 1, 1)))
    np.testing.assert_array_equal(targets, np.tile(expected.train.targets, copies))
    assert (stored.digest == expected.digest) == (copies == 1)
    # After an interruption those that are written are read from there.
    resumed = tmp_path / "resumed"
    with monkeypatch.context() as cut:
        cut.setattr(manifest, "write", lambda *_: sys.exit(9))
        with pytest.raises(SystemExit):
            converted.convert(resumed, "npy", "resnet50", **images)
    (resumed / "train-00001.inputs.npy").unlink()
    converted.convert(resumed, "npy", "resnet50", **images)
    assert content(resumed) == content(folder)
    assert manifest.read(resumed).data_digest == manifest.read(folder).data_digest


@pytest.mark.parametrize(("name", "number"), [("npy", signal.SIGKILL), ("hdf5", signal.SIGKILL), ("hdf5", signal.SIGINT)])
def test_a_conversion_that_is_killed_leaves_no_data_set_and_goes_on(name, number, digits, tmp_path):
    folder, settings = tmp_path / "data", {"file_size": 0.05, "copies": 4, **digits}
    options = [str(word) for key, value in settings.items() for word in ("--" + key.replace("_", "-"), value)]
    command = [BIN / "python", "-m", "launch.convert_data", "cnn", name, folder, *options]
    process = subprocess.Popen(command, cwd=ROOT, env=environ(), stderr=subprocess.PIPE, text=True)
    # Of some 90, or twice as many.
    while len(list(folder.glob("train-*"))) < 20:
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(number)
    _, error = process.communicate(timeout=20)
    # On a busy machine it has said how far it is.
    messages = [line for line in error.splitlines() if not line.startswith("converting: ")]
    assert (process.returncode, messages) == ((130, ["interrupted"]) if number == signal.SIGINT else (-number, []))
    assert "so it is no converted data set, or not yet" in mistakes.refusal(manifest.read, folder)
    written_at = {path: path.stat().st_mtime_ns for path in folder.glob("train-*") if path.suffix != ".part"}
    assert len(written_at) >= 18
    assert number == signal.SIGKILL or not list(folder.glob("*.part"))
    assert "has another conversion (samples_per_file" in refusal(folder, name, **settings | {"file_size": 1})
    converted.convert(folder, name, **settings)
    if name != "npy":
        # Of a pair of files one may have been missing.
        assert {path: path.stat().st_mtime_ns for path in written_at} == written_at
    assert manifest.read(folder).convert_seconds is None
    at_once = converted.convert(tmp_path / "at-once", name, **settings)
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
    assert (first[:2], ".part" in first, manifest.NAME in first, "train-00001.h5" in first) == ("2\n", False, False, True)
    assert (second[:2], manifest.NAME in second) == ("0\n", True)


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
        (["cnn", "npy", "--file-size", "0"], "--file-size is 0; it must be at least 0.001 and at most 1000000000"),
        (["cnn", "npy", "--dataset", "mnist"], "--dataset mnist requires --data-dir"),
    ],
)
def test_a_mistake_is_said_in_one_line_before_anything_is_written(arguments, message, tmp_path):
    mistakes.expect_refused(message, "launch.convert_data", *arguments[:2], tmp_path / "data", *arguments[2:])
    assert not (tmp_path / "data").exists()
