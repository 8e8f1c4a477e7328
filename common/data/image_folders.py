"""Images in a folder for each class, as torchvision's ImageFolder reads them, from local files."""

import hashlib
import math

import numpy as np

from common.data.folders import searching
from common.errors import UserError
from common.process.ranks import from_environment
from common.progress import no_progress

WHAT = "one folder of images per class"
ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
# ImageNet's training images are below this folder, beside others.
TRAINING = "train"
# Cut off at each edge of the largest square, so that of 256 pixels the middle 224 are left.
MARGIN = 1 / 16


def reader(folder, model):
    """A function that reads the images of a folder into the fields of a Dataset, without held-out ones. Files are located now.

    Raises UserError if there are none, more classes than the model has, or more images than fit into memory; the function raises it for
    a damaged image. It calls on_progress(number of images read, number of all) for each image.
    """
    files, labels = find(folder, model.num_classes)
    _expect_room(folder, len(files) * math.prod(model.input_shape), from_environment().local_size)
    # Imported here, since only this data needs it.
    from PIL import Image, ImageOps

    def square(path):
        """The middle of an image as (height, width, 3) bytes: what torchvision's Resize(256) and CenterCrop(224) keep."""
        try:
            with Image.open(path) as image:
                size = (model.image_size, model.image_size)
                return np.asarray(ImageOps.fit(image.convert("RGB"), size, Image.Resampling.BILINEAR, MARGIN))
        # Pillow raises SyntaxError for a damaged PNG.
        except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
            raise UserError(f"{path} cannot be read as an image ({error}); replace it or take it away") from None

    def read(on_progress=no_progress):
        pixels = np.empty((len(files), *model.input_shape), np.uint8)
        for number, path in enumerate(files):
            pixels[number] = square(path)
            on_progress(number + 1, len(files))
        return fields(pixels, labels)

    return read


def find(folder, num_classes):
    """(paths of all images, their labels): classes and files by name. Raises UserError where there is nothing to read."""
    with searching(folder, "imagefolder", WHAT):
        root = folder / TRAINING if (folder / TRAINING).is_dir() else folder
        classes = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
        by_class = [sorted(path for path in one.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file()) for one in classes]
    if not classes:
        raise UserError(f"--data-dir {folder} has no folders; give the one with {WHAT}")
    if len(classes) > num_classes:
        raise UserError(f"--data-dir {folder} has {len(classes):,} classes; the model has {num_classes:,}: take folders away")
    for path, images in zip(classes, by_class, strict=True):
        if not images:
            raise UserError(f"{path} has no image ({', '.join(ENDINGS)}); take the folder away, or give it images")
    labels = np.repeat(np.arange(len(classes)), [len(images) for images in by_class])
    return [path for images in by_class for path in images], labels


def fields(pixels, labels):
    """The fields of a Dataset of images (samples, height, width, 3) and labels, of which none are held out."""
    digest = hashlib.sha256(str(pixels.shape).encode())
    digest.update(pixels.data)
    digest.update(labels.astype(np.int64).data)
    return pixels, labels, pixels[:0], labels[:0], digest.hexdigest()


def _expect_room(folder, num_bytes, num_ranks):
    """Raises UserError if so many ranks of this node cannot have so many bytes each."""
    import psutil

    available = psutil.virtual_memory().available
    if num_bytes * num_ranks > available:
        raise UserError(
            f"--data-dir {folder} takes {num_bytes / 2**30:,.1f} GiB on each of {num_ranks} ranks, and {available / 2**30:,.1f} GiB are "
            "available; give a folder with fewer images"
        )
