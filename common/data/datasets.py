"""Datasets by name. Nothing is downloaded: the defaults are embedded, the others are local files."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from common.config import Settings
from common.data import images, stored, texts
from common.data.samples import Arrays, Dataset
from common.errors import UserError
from common.model import user_checks, user_data, user_model
from common.model.description import Model
from common.workloads import workload_of

Reader = Callable[[], Dataset]
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


def _of_texts(name: str, model: Any, _: Settings) -> Reader:
    return texts.reader(name, model.context)


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
    "digits": images.reader, "mnist": images.reader, "pydoc-types": _of_texts, "pydoc": _of_texts, "random": _random_images,
    user_model.DATASET: _of_file,
}  # fmt: skip
