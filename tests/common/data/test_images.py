"""Images: the embedded digits, and MNIST from a file."""

import gzip
import hashlib

import numpy as np
import pytest

from common.config import Settings
from common.data.datasets import loader
from common.data.images import DIGITS, MNIST_FILE, MNIST_KEYS, enlarging_weights, read_digits
from tests.support.mistakes import refused

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
