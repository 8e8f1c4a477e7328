"""Images in a folder for each class, as torchvision's ImageFolder reads them, from local files."""

import hashlib
import itertools
import math
from pathlib import Path

import numpy as np

from common.data import folders
from common.data.samples import Dataset, InMemory
from common.errors import UserError
from common.process.ranks import from_environment
from common.progress import no_progress

WHAT = "one folder of images per class"
ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
# Formats whose images with more than 8 bits Pillow may give as integers of 32, from 0 to 65,535.
SIXTEEN_BITS = ("PNG", "PPM")
# ImageNet's training images are below this folder, beside others.
TRAINING = "train"
# Cut off at each edge of the largest square, so that of 256 pixels the middle 224 are left.
MARGIN = 1 / 16


def reader(folder, model):
    """Returns a function of on_progress that reads the images of a folder into a Dataset, without held-out ones.

    Files are located now. Raises UserError if there are none, more classes than the model has, or more images than fit into memory; the
    function raises it for a damaged image. Its on_progress is that of Images.read.
    """
    images, labels = find_images(folder, model)
    _expect_room(folder, math.prod(images.shape), from_environment().local_size)
    return lambda on_progress: dataset(images.read(range(len(images)), on_progress), labels)


class Images:
    """The images of files as an array of bytes (samples, height, width, 3), which are read when the array is indexed by their numbers."""

    dtype = np.dtype(np.uint8)

    def __init__(self, files, shape):
        # Imported here, since only this data needs it.
        from PIL import Image, ImageOps

        self.files, self.shape = files, (len(files), *shape)
        self._image, self._fit = Image, ImageOps.fit

    def __len__(self):
        return len(self.files)

    def __getitem__(self, numbers):
        return self.read(numbers)

    def read(self, numbers, on_progress=no_progress):
        """Returns the images of these numbers. It calls on_progress(number of images read, number of all) for each image."""
        pixels = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        for place, number in enumerate(numbers):
            pixels[place] = self._square(self.files[number])
            on_progress(place + 1, len(numbers))
        return pixels

    def _square(self, path):
        """Returns the middle of an image: what torchvision's Resize(256) and CenterCrop(224) keep. Raises UserError for a damaged one."""
        try:
            with self._image.open(path) as image:
                return np.asarray(self._fit(self._coloured(image), self.shape[1:3], self._image.Resampling.BILINEAR, MARGIN))
        # Pillow raises SyntaxError for a damaged PNG.
        except (OSError, SyntaxError, ValueError, EOFError, self._image.DecompressionBombError) as error:
            raise UserError(f"{path} cannot be read as an image ({error}); replace it or take it away") from None

    def _coloured(self, image):
        """Returns an image in RGB with 8 bits for a colour. Raises ValueError where it is not known which of its values is white."""
        if image.mode.startswith("I;16") or (image.mode == "I" and image.format in SIXTEEN_BITS):
            # Pillow's own conversion takes every value above 255 for white.
            image = self._image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        elif image.mode in ("I", "F"):
            raise ValueError(f"its pixels are numbers of 32 bits, mode {image.mode}, of which none is said to be white; give 8 or 16 bits")
        return image.convert("RGB")


def find_images(folder, model):
    """Returns (Images, their labels) of a folder, classes and files by name. Raises UserError where there is nothing to read."""
    with folders.searching(folder, "imagefolder", WHAT):
        root = folder / TRAINING if (folder / TRAINING).is_dir() else folder
        classes = [Path(entry.path) for entry in folders.visible(root) if entry.is_dir()]
        by_class = [sorted(path for path in folders.files_below(below) if path.suffix.lower() in ENDINGS) for below in classes]
    if not classes:
        raise UserError(f"--data-dir {folder} has no folders; give the one with {WHAT}")
    if len(classes) > model.num_classes:
        raise UserError(f"--data-dir {folder} has {len(classes):,} classes; the model has {model.num_classes:,}: take folders away")
    for path, images in zip(classes, by_class, strict=True):
        if not images:
            raise UserError(f"{path} has no image ({', '.join(ENDINGS)}); take the folder away, or give it images")
    labels = np.repeat(np.arange(len(classes)), [len(images) for images in by_class])
    return Images(list(itertools.chain(*by_class)), model.input_shape), labels


def dataset(pixels, labels):
    """Returns the Dataset of images (samples, height, width, 3) and labels, of which none are held out."""
    digest = begin_digest(pixels.shape)
    digest.update(pixels.data)
    return Dataset(InMemory(pixels, labels), InMemory(pixels[:0], labels[:0]), end_digest(digest, labels))


def begin_digest(shape):
    """Begins the digest of images of this shape, all together; update it with the bytes of each in turn."""
    return hashlib.sha256(str(shape).encode())


def end_digest(digest, labels):
    """Returns the digest of the dataset, from that of its images."""
    digest.update(labels.astype(np.int64).data)
    return digest.hexdigest()


def _expect_room(folder, num_bytes, num_ranks):
    """Raises UserError if so many ranks of this node cannot have so many bytes each."""
    import psutil

    available = psutil.virtual_memory().available
    if num_bytes * num_ranks > available:
        raise UserError(
            f"--data-dir {folder} takes {num_bytes / 2**30:,.1f} GiB on each of {num_ranks} ranks, and {available / 2**30:,.1f} GiB are "
            "available; give a folder with fewer images"
        )
