"""Data for 41 steps of 8 samples, so that short runs make many steps: digits as MNIST has them, and stories."""

import numpy as np

from common.data import images

NUM_TRAIN, NUM_TEST = 323, 60


def write(folder, num_train=NUM_TRAIN, num_test=NUM_TEST):
    """Writes both data sets below the folder; returns {workload: the arguments that read its data}."""
    from pydoc_data import topics

    stories = folder / "stories"
    stories.mkdir(parents=True)
    text = "\n".join(topics.topics[key] for key in sorted(topics.topics)).encode("ascii", "replace")
    (stories / "train.txt").write_bytes(text[: num_train * 64 + 1])
    (stories / "valid.txt").write_bytes(text[-num_test * 64 - 1 :])
    return {
        "cnn": write_digits(folder / "mnist", num_train, num_test),
        "transformer": ("--workload", "transformer", "--dataset", "tinystories", "--data-dir", str(stories)),
    }


def write_digits(folder, num_train, num_test=NUM_TEST):
    """Writes digits as MNIST has them, the same ones again where there are too few; returns the arguments that read them."""
    folder.mkdir(parents=True)
    enlarged, labels = images.read_digits()
    pixels, labels = (enlarged * 255 // enlarged.max()).astype(np.uint8), labels.astype(np.uint8)
    indices = np.arange(num_train + num_test) % len(labels)
    train, test = indices[:num_train], indices[num_train:]
    np.savez(folder / "mnist.npz", x_train=pixels[train], y_train=labels[train], x_test=pixels[test], y_test=labels[test])
    return "--workload", "cnn", "--dataset", "mnist", "--data-dir", str(folder)
