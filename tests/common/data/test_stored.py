"""Converted data as a run reads it: the samples of data in memory, within a budget, and nothing but what was written."""

import json
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from common.data import manifest, sharding, storage_use
from common.data.formats import FORMATS
from common.meter import Meter
from common.process.ranks import Ranks
from tests.support import converted, tokenizer
from tests.support.converted import IN_ORDER, load
from tests.support.mistakes import refusal

BATCH = 8


def read(digits, name, **settings):
    """The small digits in a format on disk."""
    return load(data_format=name, data_dir=digits.folders[name], dataset="mnist", **settings)


def copied(digits, name, folder):
    """Returns (settings of a copy of the converted digits that keeps the times of the files, its folder)."""
    shutil.copytree(digits.folders[name], folder / "copy")
    return {"data_format": name, "data_dir": folder / "copy", "dataset": "mnist"}, folder / "copy"


def epoch(samples, rank=0, num_ranks=1):
    """The indices of a rank in an epoch."""
    order = sharding.Epoch(len(samples), BATCH * num_ranks, 1, 0, samples.streamed)
    return sharding.training_shard(order, sharding.DataParallel(rank, num_ranks), samples.num_losses)[0]


def assert_same_batches(samples, expected, indices):
    pairs = list(zip(samples.batches(indices), expected.batches(indices), strict=True))
    assert len(pairs) == len(indices)
    for arrays in pairs:
        for array, values in zip(*arrays, strict=True):
            assert array.dtype == values.dtype
            np.testing.assert_array_equal(array, values)


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("name", FORMATS)
def test_the_samples_are_those_in_memory(name, workers, digits):
    if name in IN_ORDER and workers > 1:
        assert f"--num-workers is 3; {name} is read in order" in refusal(read, digits, name, num_workers=3)
        return
    in_memory, on_disk = load(**digits.in_memory), read(digits, name, num_workers=workers)
    assert (len(on_disk.train), len(on_disk.test)) == (len(in_memory.train), len(in_memory.test))
    indices = epoch(on_disk.train)
    assert_same_batches(on_disk.train, in_memory.train, indices)
    assert_same_batches(on_disk.test, in_memory.test, np.arange(60).reshape(-1, 15))
    np.testing.assert_array_equal(on_disk.train.num_losses, in_memory.train.num_losses)
    # Beginning anew, as the step breakdown does, which also leaves a reading unfinished.
    next(on_disk.train.batches(indices))
    assert_same_batches(on_disk.train, in_memory.train, indices)
    # In order, the digest is that of the order too.
    assert (on_disk.digest == in_memory.digest) == (on_disk.train.streamed is None) == (name not in IN_ORDER)


@pytest.mark.parametrize("name", ["hdf5", "tfrecord"])
def test_texts_are_read_too(name, tmp_path):
    folder = converted.convert(tmp_path / "data", name, "transformer")
    samples = load(workload="transformer", data_format=name, data_dir=folder).train
    assert_same_batches(samples, load(workload="transformer").train, epoch(samples))
    assert set(samples.num_losses) == {64}


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_ranks_that_read_in_order_open_each_file_about_once(num_ranks, digits, monkeypatch):
    monkeypatch.setattr("common.data.stored.BUFFER_SIZE", 4 * BATCH)
    num_opens = 0
    for rank in range(num_ranks):
        samples = read(digits, "tfrecord").train
        assert_same_batches(samples, load(**digits.in_memory).train, epoch(samples, rank, num_ranks))
        num_opens += samples.use.num_opens
    # Of the seven files, one between two ranks is opened by both.
    assert num_opens <= 7 + num_ranks - 1


def test_what_reading_takes_is_counted(digits):
    data = read(digits, "npy", drop_caches="epoch")
    indices = epoch(data.train)
    for _ in data.train.batches(indices):
        pass
    use = data.train.use
    assert (use.num_steps, use.num_opens, use.size_bytes) == (40, 14, 320 * (28 * 28 * 4 + 8))
    assert use.wait_seconds > 0
    for _ in data.test.batches(np.arange(60).reshape(4, 15)):
        pass
    assert use.num_steps == 40


@pytest.mark.parametrize(("when", "num_times"), [("none", 0), ("once", 1), ("epoch", 3)])
def test_page_caches_are_dropped_before_the_epochs(when, num_times, digits, monkeypatch):
    dropped = []
    monkeypatch.setattr(storage_use.os, "posix_fadvise", lambda *_: dropped.append(1))
    trainer = SimpleNamespace(ranks=Ranks(), sum=lambda values: values)
    samples = read(digits, "npy", drop_caches=when).train
    recorder = storage_use.Recorder(trainer, samples, SimpleNamespace(drop_caches=when), Meter(lambda: 0.0))
    for _ in range(3):
        recorder.begin_epoch()
    # Seven shards of training and two held out have two files each; the losses lie in one more.
    assert len(dropped) == num_times * (2 * (7 + 2) + 1)
    reading = recorder.reading()
    assert (reading.sample_order, reading.num_opens_by_rank, reading.num_steps) == ("global", [0], 0)
    assert reading.stored_bytes == sum(path.stat().st_size for path in samples.storage.paths())


def test_dropping_caches_makes_the_next_reading_come_from_the_disk(digits):
    paths = list(read(digits, "hdf5").train.storage.paths())
    for path in paths:
        path.read_bytes()
    before = storage_use.process_io()
    storage_use.drop_caches(paths)
    for path in paths:
        path.read_bytes()
    after = storage_use.process_io()
    num_bytes = sum(path.stat().st_size for path in paths)
    assert after["rchar"] - before["rchar"] >= num_bytes
    assert after["read_bytes"] - before["read_bytes"] >= 0.9 * num_bytes


def test_a_folder_of_something_else_is_refused(digits, tmp_path):
    folder = digits.folders["npy"]
    assert refusal(load, data_format="hdf5") == "--data-format hdf5 requires --data-dir, the folder that launch.convert_data wrote"
    assert f"--data-dir {folder} has the format npy; give --data-format npy" in refusal(load, data_format="hdf5", data_dir=folder)
    assert f"{tmp_path} has no manifest.json" in refusal(load, data_format="hdf5", data_dir=tmp_path)
    npy = {"data_format": "npy", "data_dir": folder}
    assert "converted with --dataset mnist, and this run has digits" in refusal(load, **npy)
    assert "converted with --workload cnn, and this run has transformer" in refusal(load, workload="transformer", **npy)
    text = refusal(load, dataset="mnist", precision="fp64", **npy)
    assert "has samples of float32, and --precision fp64 needs float64; convert them with --precision fp64" in text


def test_another_tokenizer_is_refused_and_the_same_one_elsewhere_is_not(tmp_path):
    first, copy, larger = (tokenizer.write(tmp_path / name, size) for name, size in (("a", 300), ("copy", 300), ("b", 310)))
    folder = converted.convert(tmp_path / "data", "npy", "transformer", tokenizer=first)
    on_disk = {"workload": "transformer", "data_format": "npy", "data_dir": folder}
    assert load(tokenizer=copy, **on_disk).digest == load(workload="transformer", tokenizer=first).digest
    for path in (larger, None):
        assert "was converted with --tokenizer (another file)" in refusal(load, tokenizer=path, **on_disk)


def removed(path):
    path.unlink()


def with_another_bit(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("names", "damage", "message"),
    [
        (FORMATS, removed, "cannot be read (No such file or directory); write it with python -m launch"),
        (FORMATS, with_another_bit, "is not what was written there: its SHA-256 is another"),
        (["hdf5"], lambda path: os.truncate(path, 5000), "is not what was written there: its size is 5,000 bytes, and was"),
    ],
)
def test_a_file_that_is_missing_or_another_is_refused(names, damage, message, digits, tmp_path):
    for name in names:
        settings, folder = copied(digits, name, tmp_path / name)
        path = min(folder.glob("train-00003.*"))
        damage(path)
        assert refusal(load, **settings).startswith(f"{path} {message}")


def test_copies_with_other_times_are_what_they_were(digits, tmp_path):
    settings, folder = copied(digits, "hdf5", tmp_path)
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    assert load(**settings).digest == load(**digits.in_memory).digest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content | {"data_digest": "0" * 64}, "was changed after it was written: its SHA-256 is another"),
        (lambda content: content | {"version": 0}, "has version 0, this Tandem reads 1"),
        (lambda content: {}, "cannot be read (KeyError('sha256'))"),
        (lambda content: [], "cannot be read (TypeError("),
    ],
)
def test_a_changed_manifest_is_refused(change, message, digits, tmp_path):
    settings, folder = copied(digits, "npy", tmp_path)
    path = folder / manifest.NAME
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    assert f"{path} {message}" in refusal(load, **settings)


def truncated(path):
    os.truncate(path, 100)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("name", "damage"), [("npy", os.utime), *((name, truncated) for name in FORMATS if name not in IN_ORDER)])
def test_files_that_change_while_they_are_read_end_the_run(name, damage, workers, digits, tmp_path):
    settings, folder = copied(digits, name, tmp_path)
    samples = load(num_workers=workers, **settings).train
    batches = samples.batches(epoch(samples))
    next(batches)
    for path in folder.iterdir():
        if path.name != manifest.NAME:
            damage(path)
    text = refusal(list, batches)
    assert text.startswith(str(folder))
    assert "cannot be read (" in text or "has changed since the run started; leave converted data as it is, or write it with" in text
