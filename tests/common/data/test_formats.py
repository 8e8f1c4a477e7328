"""Every format: what is written is read, by any ascending indices; damage is an error; and other libraries read the same files."""

import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest

from common.data import formats
from common.data.formats import FORMATS
from common.data.storage_use import Use
from common.data.stored import DAMAGED, empty_rows
from tests.support.converted import IN_ORDER
from tests.support.mistakes import refusal

NUM = 50
DRAWN = np.random.default_rng(0)
# Images and labels, tokens and targets that do not count, vectors with probabilities.
DATA = {
    "images": (DRAWN.random((NUM, 5, 3), np.float32), DRAWN.integers(0, 10, NUM)),
    "tokens": (DRAWN.integers(0, 256, (NUM, 7), np.uint8), DRAWN.integers(-1, 256, (NUM, 7), np.int16)),
    "vectors": (DRAWN.random((NUM, 4)), DRAWN.random((NUM, 2, 3))),
}


def layout(data):
    return tuple(np.dtype((array.dtype, array.shape[1:])) for array in data)


def rows(shard, indices, data):
    """The (inputs, targets) at these indices."""
    arrays = empty_rows(layout(data), len(indices))
    shard.read(np.array(indices), arrays)
    return arrays


def written(folder, name, data):
    """The Shard of data in a format, written as launch.convert_data writes it, and the Use that counts what reading it takes."""
    module, use = formats.module_of(name), Use()
    for end, content in module.encode(*data).items():
        (folder / f"part-00000{end}").write_bytes(content)
    return module.Shard(folder / "part-00000", layout(data), use), use


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_is_read_by_any_ascending_indices(name, data, tmp_path):
    shard, _ = written(tmp_path, name, data)
    for indices in (range(NUM), [0], [NUM - 1], [3, 4, 5, 9, 20, 21, 49], [0, 2, 4], range(10, 40)):
        for array, expected in zip(rows(shard, indices, data), data, strict=True):
            np.testing.assert_array_equal(array, expected[list(indices)])


@pytest.mark.parametrize("name", FORMATS)
def test_a_shard_has_the_files_that_its_format_says_and_counts_what_it_opens(name, tmp_path):
    shard, use = written(tmp_path, name, DATA["images"])
    assert len(list(tmp_path.iterdir())) == formats.module_of(name).NUM_FILES
    rows(shard, range(10), DATA["images"])
    rows(shard, range(10, 30), DATA["images"])
    assert use.num_opens == formats.module_of(name).NUM_FILES


@pytest.mark.parametrize("name", IN_ORDER)
def test_a_format_in_order_begins_again_for_a_sample_that_it_has_passed(name, tmp_path):
    shard, use = written(tmp_path, name, DATA["images"])
    rows(shard, [7], DATA["images"])
    np.testing.assert_array_equal(rows(shard, [3], DATA["images"])[1], DATA["images"][1][[3]])
    assert use.num_opens == 2


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.999])
def test_a_truncated_file_is_an_error(name, kept, tmp_path):
    written(tmp_path, name, DATA["vectors"])
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(DAMAGED):
        rows(formats.module_of(name).Shard(tmp_path / "part-00000", layout(DATA["vectors"]), Use()), range(NUM), DATA["vectors"])


def test_tfrecord_has_checksums(tmp_path):
    shard, _ = written(tmp_path, "tfrecord", DATA["images"])
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        rows(shard, range(NUM), DATA["images"])


def test_the_libraries_own_readers_read_the_files(tmp_path):
    data = DATA["images"]
    for name in FORMATS:
        written(tmp_path, name, data)
    stem = tmp_path / "part-00000"
    hdf5 = h5py.File(f"{stem}.h5")
    for name, expected in zip(formats.NAMES, data, strict=True):
        np.testing.assert_array_equal(hdf5[name], expected)
        np.testing.assert_array_equal(np.load(f"{stem}.{name}.npy"), expected)


# TensorFlow takes seconds to start.
@pytest.mark.matrix
def test_tensorflow_reads_our_records_and_we_read_its_own(tmp_path):
    import tensorflow as tf

    data = DATA["images"]
    written(tmp_path, "tfrecord", data)
    path = str(tmp_path / "part-00000.tfrecord")
    features = dict.fromkeys(formats.NAMES, tf.io.FixedLenFeature([], tf.string))
    samples = [tf.io.parse_single_example(record, features) for record in tf.data.TFRecordDataset(path)]
    for name, array in zip(formats.NAMES, data, strict=True):
        assert b"".join(sample[name].numpy() for sample in samples) == array.tobytes()
    with tf.io.TFRecordWriter(path) as writer:
        for sample in zip(*data, strict=True):
            features = {
                name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[array.tobytes()]))
                for name, array in zip(formats.NAMES, sample, strict=True)
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    shard = formats.module_of("tfrecord").Shard(tmp_path / "part-00000", layout(data), Use())
    for array, expected in zip(rows(shard, range(NUM), data), data, strict=True):
        np.testing.assert_array_equal(array, expected)


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    monkeypatch.delitem(sys.modules, "common.data.formats.tfrecord", raising=False)
    text = refusal(formats.module_of, "tfrecord")
    assert text == "--data-format tfrecord needs the package google-crc32c, which is not installed; run launch/setup.sh"


@pytest.fixture
def switching():
    """Each collection of garbage lets another thread go on, and every few objects make one."""

    def switch(phase, info):
        time.sleep(1e-6)

    thresholds = gc.get_threshold()
    gc.callbacks.append(switch)
    gc.set_threshold(1)
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks.remove(switch)


@pytest.mark.parametrize("name", FORMATS)
def test_threads_that_open_files_at_once_do_not_disturb_each_other(name, tmp_path, switching):
    written(tmp_path, name, data := DATA["images"])

    def targets(_):
        return rows(formats.module_of(name).Shard(tmp_path / "part-00000", layout(data), Use()), range(NUM), data)[1]

    with ThreadPoolExecutor(2) as pool:
        assert all((read == data[1]).all() for read in pool.map(targets, range(40)))
