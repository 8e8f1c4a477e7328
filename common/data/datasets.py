"""Datasets by name. Nothing is downloaded: the defaults are embedded, MNIST is a local file, and a user's file has its own."""

import gzip
import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.config import Settings
from common.data import stored
from common.data.samples import Arrays, Dataset
from common.errors import UserError
from common.model import user_checks, user_data, user_model
from common.model.description import Model
from common.model.weights import DTYPES
from common.workloads import workload_of

Reader = Callable[[], Dataset]
# Images (samples, height, width) and labels to train on, and those held out.
Parts = Sequence[np.ndarray]

# The copy of scikit-learn (BSD License) of the test set of "Optical Recognition of Handwritten Digits" (UCI, CC BY 4.0).
DIGITS = Path(__file__).with_name("digits.csv.gz")
SIDE = 28
# Of every 7 images of a class so many are held out: 1,027 in all, which leaves 770 to train on.
NUM_HELD_OUT_OF_7 = 4
MNIST_FILE = "mnist.npz"
MNIST_KEYS = ("x_train", "y_train", "x_test", "y_test")
# The chapter on the standard types of the documentation of Python 3.11.7 (PSF License), of 38 KB, and the SHA-256 of the file. The topic
# `types` of an installed Python differs from release to release, so that machines with different releases would not train the same.
TYPES = Path(__file__).with_name("python_types.txt.gz")
TYPES_DIGEST = "f110222e213f4adf3a4a3d4836d176ce717d8301b286a639a36fb853e38d42a0"
# One sequence in this many is held out.
HELD_OUT_EVERY = 10
NUM_RANDOM_IMAGES = 256


def loader(settings: Settings) -> Reader:
    """Returns a function that reads the Dataset of the settings. Modules are imported and files located now, before the clock starts.

    Raises UserError for missing files; the function raises it for damaged ones.
    """
    workload = workload_of(settings)
    name = settings.dataset or workload.datasets[0]
    if settings.data_format != "memory":
        if name == user_model.DATASET:
            raise UserError(f"--data-format {settings.data_format} is for Tandem's own workloads; data() of --model reads its data itself")
        if settings.data_dir is None:
            raise UserError(f"--data-format {settings.data_format} requires --data-dir, the folder that launch.convert_data wrote")
        dataset = stored.find(settings.data_dir, settings)
        return lambda: dataset
    return READERS[name](name, workload.model, settings)


def num_samples(settings: Settings) -> int:
    """Reads the data of the settings and returns the number of training samples. Raises UserError as `loader` and its function do."""
    return len(loader(settings)().train)


def _of_digits(_: str, __: Model, settings: Settings) -> Reader:
    return lambda: _prepared(_split(*read_digits()), settings.precision)


def _of_mnist(_: str, __: Model, settings: Settings) -> Reader:
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


def _of_text(name: str, model: Any, _: Settings) -> Reader:
    """Returns a function that makes sequences of the bytes of a text, which is read now. Raises UserError where they are too few."""
    text = np.frombuffer(_types() if name == "pydoc-types" else _installed_topics(), np.uint8)
    context = model.context
    num_sequences = (len(text) - 1) // context
    if num_sequences < HELD_OUT_EVERY:
        raise UserError(
            f"the {len(text)} bytes of {name} are less than {HELD_OUT_EVERY} sequences of {context}, of which one is held out; "
            "choose a shorter --context, or --dataset pydoc"
        )
    return lambda: _sequences(text, num_sequences, context)


def _types() -> bytes:
    """Reads the text of TYPES. Raises UserError where the file has changed."""
    packed = TYPES.read_bytes()
    if hashlib.sha256(packed).hexdigest() != TYPES_DIGEST:
        raise UserError(f"{TYPES} is not the text that every machine trains on; restore it (git checkout)")
    return gzip.decompress(packed)


def _installed_topics() -> bytes:
    """Returns all topics of the documentation of this Python."""
    from pydoc_data.topics import topics

    return "\n".join(topics[key] for key in sorted(topics)).encode()


def _sequences(text: np.ndarray, num_sequences: int, context: int) -> Dataset:
    """Cuts a text into sequences, the last byte being a target alone: the target of a byte is the next byte."""
    used = num_sequences * context
    inputs, targets = text[:used].reshape(-1, context), text[1 : used + 1].reshape(-1, context)
    held_out = np.arange(num_sequences) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    train, test = ((inputs[part], targets[part]) for part in (~held_out, held_out))
    digest = hashlib.sha256()
    for array in (*train, *test):
        digest.update(str((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return Dataset(Arrays(*train), Arrays(*test), digest.hexdigest())


def _of_file(_: str, model: Any, settings: Settings) -> Reader:
    if settings.data_dir is not None:
        raise UserError("--data-dir is not for --model, whose data() reads its data itself; leave it out")
    user_checks.check(model)
    return lambda: Dataset(*user_data.read(model.file, in_threads=settings.num_workers > 0))


def _random_images(_: str, model: Any, __: Settings) -> Reader:
    """Returns a function that draws pixels and classes, of which none are held out. An image of ResNet-50 has 150,528 bytes."""

    def draw() -> Dataset:
        stream = np.random.default_rng(0)
        pixels = stream.integers(0, 256, (NUM_RANDOM_IMAGES, *model.input_shape), np.uint8)
        labels = stream.integers(0, model.num_classes, len(pixels))
        digest = hashlib.sha256(str(pixels.shape).encode() + pixels.tobytes() + labels.astype(np.int64).tobytes())
        return Dataset(Arrays(pixels, labels), Arrays(pixels[:0], labels[:0]), digest.hexdigest())

    return draw


# By the name of a data set, which the row of a workload has with a model that it is for.
READERS: dict[str, Callable[[str, Model, Settings], Reader]] = {
    "digits": _of_digits, "mnist": _of_mnist, "pydoc-types": _of_text, "pydoc": _of_text, "random": _random_images,
    user_model.DATASET: _of_file,
}  # fmt: skip
