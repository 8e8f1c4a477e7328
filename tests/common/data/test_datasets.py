"""Datasets by name, with the shapes and types of their workloads: the embedded digits and texts, MNIST from a file, and random images."""

import gzip
import hashlib
from pydoc_data import topics

import numpy as np
import pytest

from common.config import Settings
from common.data import datasets
from common.data.datasets import DIGITS, MNIST_FILE, MNIST_KEYS, enlarging_weights, loader, read_digits
from common.workloads import WORKLOADS
from tests.support import small_data
from tests.support.mistakes import refused


def arrays(dataset):
    return dataset.train.inputs, dataset.train.targets, dataset.test.inputs, dataset.test.targets


# Those for throughput only are tested below.
PAIRS = [(name, dataset) for name, workload in WORKLOADS.items() for dataset in workload.datasets if workload.target is not None]


@pytest.mark.parametrize("pair", PAIRS)
def test_samples_have_the_shapes_and_types_that_the_model_takes(pair, tmp_path):
    small_data.write_digits(tmp_path / "data", 100)
    model, data = WORKLOADS[pair[0]].model, loader(Settings(workload=pair[0], dataset=pair[1], data_dir=tmp_path / "data"))()
    for inputs, targets in (arrays(data)[:2], arrays(data)[2:]):
        assert len(inputs) == len(targets) > 0
        assert inputs.shape[1:] == model.input_shape
        assert targets.shape[1:] == model.target_shape
        assert np.issubdtype(inputs.dtype, np.integer) == model.whole_inputs
        assert np.issubdtype(targets.dtype, np.integer)
        assert (targets >= 0).any(axis=tuple(range(1, targets.ndim))).all(), "a sample has no loss"
    assert len(data.digest) == 64


def test_random_images_are_256_of_bytes_with_a_class_each_and_none_held_out():
    in_float32, in_float64 = (loader(Settings(workload="resnet50", precision=precision))() for precision in ("fp32", "fp64"))
    assert [array.shape for array in arrays(in_float32)] == [(256, 224, 224, 3), (256,), (0, 224, 224, 3), (0,)]
    assert (in_float32.train.inputs.dtype, in_float32.train.inputs.min(), in_float32.train.inputs.max()) == (np.uint8, 0, 255)
    assert in_float32.train.inputs.mean() == pytest.approx(127.5, abs=0.1)
    assert 0 <= in_float32.train.targets.min() < 100
    assert 900 < in_float32.train.targets.max() < 1000
    assert in_float32.digest == in_float64.digest


DIGITS_DIGEST = "2b2c19824ccbe78d2c330552e60ce242398623c9788049a87770f3bd3b8dd259"


def test_the_digits_are_the_same_everywhere_and_both_parts_have_all_classes_in_equal_shares():
    single, double = (loader(Settings(precision=precision))() for precision in ("fp32", "fp64"))
    assert single.digest == double.digest == DIGITS_DIGEST
    assert (double.train.inputs.shape, double.test.inputs.shape) == ((770, 28, 28), (1027, 28, 28))
    train, test = (np.bincount(samples.targets, minlength=10) for samples in (double.train, double.test))
    assert (np.abs(test - (train + test) * 1027 / 1797) < 1).all()
    # fp32 is fp64 rounded.
    assert single.train.inputs.dtype == single.test.inputs.dtype == np.float32
    np.testing.assert_array_equal(single.train.inputs, double.train.inputs.astype(np.float32))


@pytest.mark.parametrize("damaged", [DIGITS.read_bytes()[:-20], gzip.compress(b"0,1\n2,3\n")], ids=["cut off", "another table"])
def test_damaged_digits_are_named_with_the_remedy(damaged, tmp_path):
    path = tmp_path / "digits.csv.gz"
    path.write_bytes(damaged)
    with refused(f"{path} cannot be read", "restore it (git checkout)"):
        read_digits(path)


@pytest.mark.parametrize(("old", "new"), [(8, 28), (3, 7), (1, 5), (28, 28)])
def test_enlarging_is_linear_interpolation_between_pixel_centres(old, new):
    # At the edges their values are kept.
    weights = enlarging_weights(old, new)
    assert weights.shape == (new, old)
    assert weights.dtype == np.int64
    assert (weights.sum(axis=1) == 2 * new).all()
    centres = (np.arange(new) + 0.5) * old / new - 0.5
    expected = np.stack([np.interp(centres, np.arange(old), pixel) for pixel in np.eye(old)], axis=1)
    np.testing.assert_allclose(weights / (2 * new), expected, atol=1e-12)


def mnist_arrays():
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 256, (12, 28, 28)), np.arange(12) % 10, rng.integers(0, 256, (5, 28, 28)), np.arange(5)]
    return [array.astype(np.uint8) for array in arrays]


def write_npz(folder, arrays):
    np.savez_compressed(folder / MNIST_FILE, **dict(zip(MNIST_KEYS, arrays, strict=True)))


def mnist(folder):
    return loader(Settings(dataset="mnist", data_dir=folder, precision="fp64"))


def test_mnist_is_standardised_with_its_training_images_and_has_a_digest_of_integers(tmp_path):
    arrays = mnist_arrays()
    write_npz(tmp_path, arrays)
    dataset = mnist(tmp_path)()
    for images, raw in ((dataset.train.inputs, arrays[0]), (dataset.test.inputs, arrays[2])):
        np.testing.assert_allclose(images, (raw - arrays[0].mean()) / arrays[0].std(), rtol=1e-12)
    for labels, raw in ((dataset.train.targets, arrays[1]), (dataset.test.targets, arrays[3])):
        assert labels.dtype == np.int64
        np.testing.assert_array_equal(labels, raw)
    # Of integers, which do not depend on this computer's floating point, and of all four arrays.
    assert dataset.digest == hashlib.sha256(b"".join(array.astype("<i8").tobytes() for array in arrays)).hexdigest()


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"\0\0\x0d" + data[3:], lambda data: b""], ids=["cut off", "no archive", "nothing"]
)
def test_a_damaged_file_is_named_with_the_remedy(damage, tmp_path):
    write_npz(tmp_path, mnist_arrays())
    # The folder is searched before the clock starts, and read on it.
    read, path = mnist(tmp_path), tmp_path / MNIST_FILE
    path.write_bytes(damage(path.read_bytes()))
    with refused(str(path), "complete .npz with x_train, y_train, x_test, y_test"):
        read()


@pytest.mark.parametrize(
    ("number", "array", "message"),
    [
        (1, np.zeros(11, np.uint8), "(11,)"),
        (3, np.zeros((5, 1), np.uint8), "(5, 1)"),
        (0, np.zeros((12, 784), np.uint8), "(12, 784)"),
        (0, np.zeros((12, 28, 28), np.float32), "images of float32 (12, 28, 28) and labels of uint8 (12,)"),
        (1, np.arange(12) / 2, "labels of float64"),
        (1, np.full(12, 10, np.uint8), "label 10 is invalid"),
        (3, np.array([0, 1, -1, 2, 3]), "label -1 is invalid"),
    ],
)
def test_inputs_and_labels_that_are_not_mnists_are_an_error(number, array, message, tmp_path):
    arrays = mnist_arrays()
    arrays[number] = array
    write_npz(tmp_path, arrays)
    with refused(str(tmp_path), message, "MNIST's"):
        mnist(tmp_path)()


@pytest.mark.parametrize("name", ["", "nowhere", "file", "a" * 300])
def test_a_folder_without_the_file_is_refused_before_anything_is_read(name, tmp_path):
    (tmp_path / "file").write_text("")
    with refused(f"--data-dir {tmp_path / name} is not a folder with mnist.npz that can be read"):
        mnist(tmp_path / name)
    with refused("--dataset mnist requires --data-dir, the folder with mnist.npz"):
        mnist(None)


def read(name, context):
    return loader(Settings(workload="transformer", dataset=name, context=context))()


def expect_text(data, text):
    """Expects every tenth sequence to be held out, the target of a byte to be the next one, and only bytes at the end to be left out."""
    num_sequences = len(data.train.inputs) + len(data.test.inputs)
    held_out = np.arange(num_sequences) % 10 == 9
    inputs, targets = np.empty((2, num_sequences, data.train.inputs.shape[1]), np.uint8)
    inputs[~held_out], inputs[held_out], targets[~held_out], targets[held_out] = *(data.train.inputs, data.test.inputs), *(
        data.train.targets, data.test.targets,
    )  # fmt: skip
    assert bytes(inputs.ravel()) == text[: inputs.size]
    assert bytes(targets.ravel()) == text[1 : inputs.size + 1]
    assert 0 < len(text) - inputs.size <= inputs.shape[1]


def test_the_sequences_of_pydoc_are_its_topics_in_the_order_of_their_names(monkeypatch):
    data = read("pydoc", 64)
    expect_text(data, "\n".join(topics.topics[key] for key in sorted(topics.topics)).encode())
    monkeypatch.setattr(topics, "topics", dict(reversed(topics.topics.items())))
    assert read("pydoc", 64).digest == data.digest != read("pydoc", 32).digest


def test_the_chapter_about_types_is_the_same_with_every_python(monkeypatch, tmp_path):
    monkeypatch.setattr(topics, "topics", {"types": "another release"})
    data = read("pydoc-types", 64)
    assert data.digest == "67b633c43fbfe7228a707a6b24bd7cf7bbfb7a5edf8791f0026e40a48d42a4aa"
    expect_text(data, gzip.decompress(datasets.TYPES.read_bytes()))
    monkeypatch.setattr(datasets, "TYPES", tmp_path / "types.txt.gz")
    (tmp_path / "types.txt.gz").write_bytes(gzip.compress(b"another text"))
    with refused("is not the text that every machine trains on"):
        read("pydoc-types", 64)


@pytest.mark.parametrize(("length", "num_sequences"), [(161, 10), (176, 10), (177, 11), (160, None), (0, None)])
def test_bytes_that_fill_no_sequence_are_left_out_and_a_text_of_fewer_than_ten_is_refused(length, num_sequences, monkeypatch):
    text = "".join(chr(32 + number % 90) for number in range(length))
    monkeypatch.setattr(topics, "topics", {"all": text})
    if num_sequences is None:
        with refused(f"the {length} bytes of pydoc are less than 10 sequences of 16, of which one is held out; choose a shorter --context"):
            read("pydoc", 16)
        return
    data = read("pydoc", 16)
    assert len(data.train) + len(data.test) == num_sequences
    expect_text(data, text.encode())


def test_the_digest_changes_with_one_byte_of_any_part(monkeypatch):
    digests = set()
    # The first byte is an input alone, the last a target alone, and the last tenth is held out.
    for place in (0, 80, 150, 160, None):
        monkeypatch.setattr(topics, "topics", {"all": "".join("xa"[number != place] for number in range(161))})
        digests.add(read("pydoc", 16).digest)
    assert len(digests) == 5
