"""Images: the embedded digits, and MNIST in every file format."""

import gzip
import hashlib
import struct
from functools import partial

import numpy as np
import pytest

from common.config import Settings
from common.data.datasets import loader
from common.data.images import DIGITS, MNIST_FILES, MNIST_KEYS, enlarging_weights, read_digits
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


@pytest.mark.parametrize(("old", "new"), [(8, 28), (8, 8), (2, 4), (3, 7), (1, 5), (28, 28)])
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


def write_idx(folder, arrays, name_of=lambda name: name, pack=lambda data: data):
    for name, array in zip(MNIST_FILES, arrays, strict=True):
        header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        (folder / name_of(name)).write_bytes(pack(header + array.tobytes()))


def write_npz(folder, arrays):
    np.savez_compressed(folder / "mnist.npz", **dict(zip(MNIST_KEYS, arrays, strict=True)))


def mnist(folder):
    return loader(Settings(dataset="mnist", data_dir=folder, precision="fp64"))


@pytest.mark.parametrize(
    "write",
    [
        write_idx,
        partial(write_idx, name_of="{}.gz".format, pack=gzip.compress),
        write_npz,
    ],
)
def test_mnist_is_the_same_in_every_form(write, tmp_path):
    arrays = mnist_arrays()
    write(tmp_path, arrays)
    dataset = mnist(tmp_path)()
    for images, raw in ((dataset.train.inputs, arrays[0]), (dataset.test.inputs, arrays[2])):
        np.testing.assert_allclose(images, (raw - arrays[0].mean()) / arrays[0].std(), rtol=1e-12)
    for labels, raw in ((dataset.train.targets, arrays[1]), (dataset.test.targets, arrays[3])):
        assert labels.dtype == np.int64
        np.testing.assert_array_equal(labels, raw)
    # Of integers, which do not depend on this computer's floating point, and of all four arrays.
    assert dataset.digest == hashlib.sha256(b"".join(array.astype("<i8").tobytes() for array in arrays)).hexdigest()


# tests/common/data/test_texts.py has files that cannot be unpacked.
DAMAGE = {
    "cut off": lambda data: data[:-1],
    "too long": lambda data: data + b"\0",
    "another magic number": lambda data: b"\0\0\x0d" + data[3:],
    "half a header": lambda data: data[:6],
    "nothing": lambda data: b"",
}
OF_IDX = [(write_idx, MNIST_FILES[0], damage, "copy it again") for damage in DAMAGE]
OF_NPZ = [(write_npz, "mnist.npz", damage, "complete .npz") for damage in ("cut off", "another magic number", "nothing")]


@pytest.mark.parametrize(("write", "name", "damage", "remedy"), OF_IDX + OF_NPZ)
def test_a_damaged_file_is_named_with_the_remedy(write, name, damage, remedy, tmp_path):
    write(tmp_path, mnist_arrays())
    path = tmp_path / name
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    read = mnist(tmp_path)
    with refused(str(path), remedy):
        read()


@pytest.mark.parametrize(
    ("number", "array", "message"),
    [
        (1, np.zeros(11, np.uint8), "(11,)"),
        (3, np.zeros(6, np.uint8), "(6,)"),
        (1, np.full(12, 10, np.uint8), "label 10"),
        (0, np.zeros((12, 27, 28), np.uint8), "(12, 27, 28)"),
        (0, np.zeros((12, 784), np.uint8), "(12, 784)"),
        (3, np.zeros((5, 1), np.uint8), "(5, 1)"),
        (0, np.zeros((12, 28, 28), np.float32), "images of float32 (12, 28, 28) and labels of uint8 (12,)"),
        (2, np.zeros((5, 28, 28), np.int64), "images of int64"),
        (1, np.arange(12) / 2, "labels of float64"),
        (3, np.array([0, 1, -1, 2, 3]), "label -1"),
    ],
)
def test_inputs_and_labels_that_are_not_mnists_are_an_error(number, array, message, tmp_path):
    arrays = mnist_arrays()
    arrays[number] = array
    write_npz(tmp_path, arrays)
    with refused(str(tmp_path), message, "MNIST's", "copy the files again"):
        mnist(tmp_path)()


@pytest.mark.parametrize("name", MNIST_FILES)
def test_a_missing_file_is_named_before_anything_is_read(name, tmp_path):
    write_idx(tmp_path, mnist_arrays())
    (tmp_path / name).unlink()
    with refused(str(tmp_path), name, f"{name}.gz", "mnist.npz", "--data-dir"):
        mnist(tmp_path)


def test_an_npz_without_a_key_is_named_with_the_keys(tmp_path):
    np.savez(tmp_path / "mnist.npz", **dict(zip(MNIST_KEYS[:-1], mnist_arrays()[:-1], strict=True)))
    with refused(str(tmp_path / "mnist.npz"), "complete .npz", *MNIST_KEYS):
        mnist(tmp_path)()
