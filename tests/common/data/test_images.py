"""Images: scikit-learn's digits, and MNIST in every file format."""

import gzip
import hashlib
import importlib.util
import struct
import subprocess
import sys

import numpy as np
import pytest

from common.config import Settings
from common.data.datasets import loader
from common.data.images import MNIST_FILES, MNIST_KEYS, enlarging_weights, find_digits, read_digits
from common.errors import UserError
from tests.support.mistakes import refused

DIGITS_DIGEST = "33992dc6b9845ca1d659f0f892af7ff317428b2acf2ec676242520c7f868d421"


@pytest.fixture(scope="module")
def digits():
    return loader(Settings(precision="fp64"))()


def test_digits_are_split_into_1437_and_360(digits):
    assert [array.shape for array in digits[:4]] == [(1437, 28, 28), (1437,), (360, 28, 28), (360,)]


def test_both_parts_of_the_digits_have_all_classes_in_equal_shares(digits):
    train, test = np.bincount(digits.train_targets, minlength=10), np.bincount(digits.test_targets, minlength=10)
    assert len(train) == len(test) == 10
    assert (np.abs(test - (train + test) * 360 / 1797) < 1).all()


def test_the_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    expected, weights = load_digits(), enlarging_weights(8, 28)
    images, labels = read_digits(find_digits())
    np.testing.assert_array_equal(images, weights @ expected.images.astype(int) @ weights.T)
    np.testing.assert_array_equal(labels, expected.target)


def test_the_digits_are_read_without_importing_scikit_learn():
    read = "import sys; from common.config import Settings; from common.data.datasets import loader; loader(Settings())()"
    done = subprocess.run([sys.executable, "-c", f"{read}; print('sklearn' in sys.modules)"], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_scikit_learn_it_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="scikit-learn, which contains the digits, is not installed"):
        find_digits()


def test_a_scikit_learn_without_the_digits_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "sklearn").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "sklearn", raising=False)
    importlib.invalidate_caches()
    with pytest.raises(UserError, match=r"this scikit-learn has no .*digits\.csv\.gz; install the version in environment\.yml"):
        find_digits()


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-20], lambda raw: b"", lambda raw: gzip.compress(b"0,1\n2,3\n"), lambda raw: b"no gzip"]
)
def test_damaged_digits_are_named_with_the_remedy(damage, tmp_path):
    path = tmp_path / "digits.csv.gz"
    path.write_bytes(damage(find_digits().read_bytes()))
    with refused(f"{path} cannot be read", "install scikit-learn again"):
        read_digits(path)


def test_training_images_have_mean_0_and_standard_deviation_1(digits):
    assert digits.train_inputs.mean() == pytest.approx(0, abs=1e-12)
    assert digits.train_inputs.std() == pytest.approx(1, abs=1e-12)


def test_held_out_images_are_scaled_like_the_training_images(digits):
    # Pixels of both parts go from 0 to 16. Scaled by their own mean, the parts would begin at different values.
    assert digits.test_inputs.min() == digits.train_inputs.min()
    assert digits.test_inputs.mean() != pytest.approx(0, abs=1e-6)


def test_the_digest_of_the_digits_is_the_same_everywhere(digits):
    assert digits.digest == DIGITS_DIGEST


def test_fp32_is_fp64_rounded_and_has_the_same_digest(digits):
    single = loader(Settings(precision="fp32"))()
    assert single.train_inputs.dtype == single.test_inputs.dtype == np.float32
    np.testing.assert_array_equal(single.train_inputs, digits.train_inputs.astype(np.float32))
    assert single.digest == digits.digest


def test_enlarging_2_pixels_to_4_keeps_the_edges_and_mixes_the_middle():
    assert enlarging_weights(2, 4).tolist() == [[8, 0], [6, 2], [2, 6], [0, 8]]


@pytest.mark.parametrize(("old", "new"), [(8, 28), (8, 8), (2, 4), (3, 7), (1, 5), (28, 28)])
def test_enlarging_is_linear_interpolation_between_pixel_centres(old, new):
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


def as_idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder, arrays):
    for name, array in zip(MNIST_FILES, arrays, strict=True):
        (folder / name).write_bytes(as_idx(array))


def write_gzipped(folder, arrays):
    for name, array in zip(MNIST_FILES, arrays, strict=True):
        (folder / f"{name}.gz").write_bytes(gzip.compress(as_idx(array)))


def write_dotted(folder, arrays):
    for name, array in zip(MNIST_FILES, arrays, strict=True):
        (folder / name.replace("-idx", ".idx")).write_bytes(as_idx(array))


def write_npz(folder, arrays):
    np.savez_compressed(folder / "mnist.npz", **dict(zip(MNIST_KEYS, arrays, strict=True)))


def mnist(folder):
    return loader(Settings(dataset="mnist", data_dir=folder, precision="fp64"))


@pytest.mark.parametrize("write", [write_idx, write_gzipped, write_dotted, write_npz])
def test_mnist_is_the_same_in_every_form(write, tmp_path):
    arrays = mnist_arrays()
    write(tmp_path, arrays)
    found = mnist(tmp_path)()
    for images, raw in ((found.train_inputs, arrays[0]), (found.test_inputs, arrays[2])):
        np.testing.assert_allclose(images, (raw - arrays[0].mean()) / arrays[0].std(), rtol=1e-12)
    for labels, raw in ((found.train_targets, arrays[1]), (found.test_targets, arrays[3])):
        assert labels.dtype == np.int64
        np.testing.assert_array_equal(labels, raw)
    # Of integers, which do not depend on this computer's floating point.
    assert found.digest == hashlib.sha256(b"".join(array.astype("<i8").tobytes() for array in arrays)).hexdigest()


def test_the_digest_changes_with_one_pixel_and_with_one_label(tmp_path):
    digests = set()
    for changed in (None, 0, 1, 2, 3):
        arrays = mnist_arrays()
        if changed is not None:
            arrays[changed].flat[3] ^= 1
        write_idx(tmp_path, arrays)
        digests.add(mnist(tmp_path)().digest)
    assert len(digests) == 5


def cut_off(data):
    return data[:-1]


def too_long(data):
    return data + b"\0"


def wrong_magic(data):
    return b"\0\0\x0d" + data[3:]


def only_half_a_header(data):
    return data[:6]


def nothing(data):
    return b""


def cut_off_gzip(data):
    return gzip.compress(data)[:-20]


def flipped_bits(data):
    packed = bytearray(gzip.compress(data))
    packed[len(packed) // 2] ^= 0xFF
    return bytes(packed)


@pytest.mark.parametrize("damage", [cut_off, too_long, wrong_magic, only_half_a_header, nothing, cut_off_gzip, flipped_bits])
def test_a_damaged_idx_file_is_named_with_the_remedy(damage, tmp_path):
    write_idx(tmp_path, mnist_arrays())
    path = tmp_path / MNIST_FILES[0]
    path.write_bytes(damage(path.read_bytes()))
    read = mnist(tmp_path)
    with refused(str(path), "copy it again"):
        read()


@pytest.mark.parametrize(
    ("which", "array", "message"),
    [
        (1, np.zeros(11, np.uint8), "(11,)"),
        (3, np.zeros(6, np.uint8), "(6,)"),
        (1, np.full(12, 10, np.uint8), "label 10"),
        (0, np.zeros((12, 27, 28), np.uint8), "(12, 27, 28)"),
        (0, np.zeros((12, 784), np.uint8), "(12, 784)"),
        (3, np.zeros((5, 1), np.uint8), "(5, 1)"),
    ],
)
@pytest.mark.parametrize("write", [write_idx, write_npz])
def test_inputs_and_labels_that_are_not_mnists_are_an_error(write, which, array, message, tmp_path):
    arrays = mnist_arrays()
    arrays[which] = array
    write(tmp_path, arrays)
    with refused(str(tmp_path), message, "MNIST's"):
        mnist(tmp_path)()


@pytest.mark.parametrize(
    ("which", "array", "message"),
    [
        (0, np.linspace(0, 1, 12 * 28 * 28, dtype=np.float32).reshape(12, 28, 28), "images of float32 and labels of uint8"),
        (2, np.zeros((5, 28, 28), np.int64), "images of int64"),
        (1, np.arange(12) / 2, "labels of float64"),
        (3, np.array([0, 1, -1, 2, 3]), "label -1"),
    ],
)
def test_an_npz_of_other_numbers_than_mnists_is_an_error(which, array, message, tmp_path):
    arrays = mnist_arrays()
    arrays[which] = array
    write_npz(tmp_path, arrays)
    with refused(str(tmp_path), message, "MNIST's", "copy the files again"):
        mnist(tmp_path)()


@pytest.mark.parametrize("name", MNIST_FILES)
def test_a_missing_file_is_named_before_anything_is_read(name, tmp_path):
    write_idx(tmp_path, mnist_arrays())
    (tmp_path / name).unlink()
    with refused(str(tmp_path), name, f"{name}.gz", "mnist.npz", "--data-dir"):
        mnist(tmp_path)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UserError, match=r"--data-dir .*nowhere is not a folder; give the one with the IDX files or mnist\.npz"):
        mnist(tmp_path / "nowhere")


def test_mnist_without_a_folder_asks_for_one():
    with pytest.raises(UserError, match=r"--dataset mnist requires --data-dir, the folder with the IDX files or mnist\.npz"):
        mnist(None)


@pytest.mark.parametrize("missing", MNIST_KEYS)
def test_an_npz_without_a_key_is_named_with_the_keys(missing, tmp_path):
    arrays = dict(zip(MNIST_KEYS, mnist_arrays(), strict=True))
    del arrays[missing]
    np.savez(tmp_path / "mnist.npz", **arrays)
    with refused(str(tmp_path / "mnist.npz"), "complete .npz", *MNIST_KEYS):
        mnist(tmp_path)()


@pytest.mark.parametrize("damage", [cut_off, wrong_magic, nothing])
def test_a_damaged_npz_is_named_with_the_remedy(damage, tmp_path):
    write_npz(tmp_path, mnist_arrays())
    path = tmp_path / "mnist.npz"
    path.write_bytes(damage(path.read_bytes()))
    with refused(str(path), "complete .npz"):
        mnist(tmp_path)()
