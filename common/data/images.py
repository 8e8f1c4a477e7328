"""Images: the embedded digits, and MNIST from a local file."""

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from common.config import Settings
from common.data.samples import Arrays, Dataset
from common.errors import UserError
from common.model.description import Model
from common.model.weights import DTYPES

# The copy of scikit-learn (BSD License) of the test set of "Optical Recognition of Handwritten Digits" (UCI, CC BY 4.0).
DIGITS = Path(__file__).with_name("digits.csv.gz")
SIDE = 28
# Of every 7 images of a class so many are held out: 1,027 in all, which leaves 770 to train on.
NUM_HELD_OUT_OF_7 = 4


# Images (samples, height, width) and labels to train on, and those held out.
Parts = Sequence[np.ndarray]


def reader(name: str, _: Model, settings: Settings) -> Callable[[], Dataset]:
    """Returns a function that reads `digits`, or `mnist` from the folder of the settings.

    The file is located now. Raises UserError if there is none; the function raises it for a damaged one.
    """
    if name == "digits":
        return lambda: _prepared(_split(*read_digits()), settings.precision)
    path = _find_mnist(settings.data_dir)
    return lambda: _prepared(_read_mnist(path), settings.precision)


def read_digits(path: Path = DIGITS) -> tuple[np.ndarray, np.ndarray]:
    """Reads 1,797 handwritten digits of 8x8 pixels, 0 to 16 (UCI, Alpaydin and Kaynak 1998), enlarged to 28x28, and their labels.

    Every line of the file is an image, its rows one after the other, and its label.
    """
    try:
        table = np.loadtxt(path, np.int64, delimiter=",")
        pixels, labels = table[:, :-1].reshape(-1, 8, 8), table[:, -1]
    except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); restore it (git checkout)") from None
    weights = enlarging_weights(8, SIDE)
    return weights @ pixels @ weights.T, labels


def _split(images: np.ndarray, labels: np.ndarray) -> Parts:
    """Holds out four of every seven images of each class. The file's order is by writer, so both parts have images by all writers."""
    by_class = np.argsort(labels, kind="stable")
    held_out = np.zeros(len(labels), bool)
    held_out[by_class[np.arange(len(labels)) * NUM_HELD_OUT_OF_7 % 7 < NUM_HELD_OUT_OF_7]] = True
    return images[~held_out], labels[~held_out], images[held_out], labels[held_out]


def enlarging_weights(old: int, new: int) -> np.ndarray:
    """Returns the weights of bilinear interpolation along one axis, integers of shape (new, old) whose rows sum to 2 * new.

    Pixel centres are at half-integers and edge pixels are extended. With integers the data is bitwise the same on every machine.
    Standardisation removes the common factor.
    """
    position = np.clip((2 * np.arange(new) + 1) * old - new, 0, 2 * new * (old - 1))
    left, right_weight = np.divmod(position, 2 * new)
    weights = np.zeros((new, old), np.int64)
    weights[np.arange(new), left] = 2 * new - right_weight
    weights[np.arange(new), np.minimum(left + 1, old - 1)] += right_weight
    return weights


def _prepared(parts: Parts, precision: str) -> Dataset:
    """Returns the dataset of images of 28x28 pixels, standardised with the training images, and labels 0 to 9."""
    digest = hashlib.sha256()
    for array in parts:
        digest.update(np.ascontiguousarray(array, np.int64).data)
    mean, deviation = parts[0].mean(dtype=np.float64), parts[0].std(dtype=np.float64)
    train, test = (
        Arrays(((images - mean) / deviation).astype(DTYPES[precision]), labels.astype(np.int64))
        for images, labels in (parts[:2], parts[2:])
    )
    return Dataset(train, test, digest.hexdigest())


MNIST_FILE = "mnist.npz"
MNIST_KEYS = ("x_train", "y_train", "x_test", "y_test")


def _find_mnist(folder: Path | None) -> Path:
    if folder is None:
        raise UserError(f"--dataset mnist requires --data-dir, the folder with {MNIST_FILE}")
    path = folder / MNIST_FILE
    # It is False for a folder that cannot be read, and for a name that is too long.
    if not os.path.isfile(path):
        raise UserError(f"--data-dir {folder} is not a folder with {MNIST_FILE} that can be read")
    return path


def _read_mnist(path: Path) -> Parts:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = [archive[key] for key in MNIST_KEYS]
    except (KeyError, ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); it must be a complete .npz with {', '.join(MNIST_KEYS)}") from None
    for images, labels in (arrays[:2], arrays[2:]):
        are_in_shape = images.shape[1:] == (SIDE, SIDE) and labels.shape == images.shape[:1] and len(labels)
        # After a cast to integers, other types could have the same digest as different data.
        if not are_in_shape or images.dtype != np.uint8 or not np.issubdtype(labels.dtype, np.integer):
            images_read, labels_read = (f"{array.dtype} {array.shape}" for array in (images, labels))
            raise UserError(
                f"{path}: images of {images_read} and labels of {labels_read} are not MNIST's: unsigned bytes (n, 28, 28) and integers (n,)"
            )
        outside = labels[(labels < 0) | (labels > 9)]
        if len(outside):
            raise UserError(f"{path}: label {outside[0]} is invalid; MNIST's labels are 0 to 9")
    return arrays
