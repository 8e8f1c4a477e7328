"""Images in a folder for each class, as torchvision's ImageFolder reads them, from local files."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from common.data import folders
from common.data.samples import Dataset, InMemory
from common.errors import UserError
from common.model.resnet import ResNet50
from common.progress import OnProgress
from common.ranks.launcher_variables import from_environment

if TYPE_CHECKING:
    from PIL import Image

CONTENT = "one folder of images per class"
ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
# Formats whose images with more than 8 bits Pillow may return as integers of 32 bits, from 0 to 65,535.
SIXTEEN_BITS = ("PNG", "PPM")
# ImageNet's training images are in this folder, beside other folders.
TRAINING = "train"
# This fraction is cut off at each edge of the largest square, so that of 256 pixels the middle 224 are left.
MARGIN = 1 / 16


def reader(folder: Path | None, model: ResNet50) -> Callable[[OnProgress], Dataset]:
    """Returns a function that reads the images of a folder, of which none are held out.

    Files are located now. Raises UserError if there are none, more classes than the model has, or more images than fit into memory; the
    function raises it for a damaged image. Its OnProgress counts images.
    """
    files, labels = _find(folder, model)
    _expect_room(folder, len(files) * math.prod(model.input_shape), from_environment().local_size)
    return lambda on_progress: dataset(_read(files, model.input_shape, on_progress), labels)


def _read(files: Sequence[Path], shape: tuple[int, int, int], on_progress: OnProgress) -> np.ndarray:
    """Reads images of this shape as an array of bytes (samples, height, width, 3)."""
    pixels = np.empty((len(files), *shape), np.uint8)
    for place, path in enumerate(files):
        pixels[place] = _square(path, shape[:2])
        on_progress(place + 1, len(files))
    return pixels


def _square(path: Path, size: tuple[int, int]) -> np.ndarray:
    """Reads the middle of an image, which torchvision's Resize(256) and CenterCrop(224) keep. Raises UserError for a damaged image."""
    # Imported here, since only this data needs it.
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            return np.asarray(ImageOps.fit(_coloured(image), size, Image.Resampling.BILINEAR, MARGIN))
    # Pillow raises SyntaxError for a damaged PNG.
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} cannot be read as an image ({error}); replace it or take it away") from None


def _coloured(image: Image.Image) -> Image.Image:
    """Converts an image to RGB with 8 bits for each colour. Raises ValueError where it is not known which of its values is white."""
    from PIL import Image

    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in SIXTEEN_BITS):
        # Pillow's own conversion takes every value above 255 for white.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError(f"its pixels are numbers of 32 bits, mode {image.mode}, of which none is said to be white; give 8 or 16 bits")
    return image.convert("RGB")


def _find(folder: Path | None, model: ResNet50) -> tuple[list[Path], np.ndarray]:
    """Returns the files of the images of a folder, in the order of the names of classes and files, and their labels.

    Raises UserError where there is nothing to read.
    """
    with folders.searching(folder, "imagefolder", CONTENT) as data_dir:
        root = data_dir / TRAINING if (data_dir / TRAINING).is_dir() else data_dir
        classes = [Path(entry.path) for entry in folders.visible(root) if entry.is_dir()]
        by_class = [sorted(path for path in folders.files_below(below) if path.suffix.lower() in ENDINGS) for below in classes]
    if not classes:
        raise UserError(f"--data-dir {folder} has no folders; give the one with {CONTENT}")
    if len(classes) > model.num_classes:
        raise UserError(f"--data-dir {folder} has {len(classes):,} classes; the model has {model.num_classes:,}: take folders away")
    for path, images in zip(classes, by_class, strict=True):
        if not images:
            raise UserError(f"{path} has no image ({', '.join(ENDINGS)}); take the folder away, or give it images")
    labels = np.repeat(np.arange(len(classes)), [len(images) for images in by_class])
    return list(itertools.chain(*by_class)), labels


def dataset(pixels: np.ndarray, labels: np.ndarray) -> Dataset:
    """Returns the dataset of images (samples, height, width, 3) and labels, of which none are held out."""
    digest = hashlib.sha256(str(pixels.shape).encode())
    digest.update(pixels.data)
    digest.update(labels.astype(np.int64).data)
    return Dataset(InMemory(pixels, labels), InMemory(pixels[:0], labels[:0]), digest.hexdigest())


def _expect_room(folder: Path | None, num_bytes: int, num_ranks: int) -> None:
    """Raises UserError if the memory of this node does not have so many bytes for each of its ranks."""
    import psutil

    available = psutil.virtual_memory().available
    if num_bytes * num_ranks > available:
        raise UserError(
            f"--data-dir {folder} takes {num_bytes / 2**30:,.1f} GiB on each of {num_ranks} ranks, and {available / 2**30:,.1f} GiB are "
            "available; give a folder with fewer images"
        )
