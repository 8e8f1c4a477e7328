"""Data for 65 steps of 8 samples, so that short runs make many steps: digits as MNIST has them, and stories."""

import numpy as np

from common import images

NUM_TRAIN, NUM_TEST = 515, 60


def write(folder, num_train=NUM_TRAIN):
    """Writes both data sets below the folder; returns {workload: the arguments that read its data}."""
    from pydoc_data import topics

    from sklearn.datasets import load_digits

    mnist, stories = folder / "mnist", folder / "stories"
    mnist.mkdir(parents=True)
    stories.mkdir()
    digits = load_digits()
    weights = images.enlarging_weights(8, images.SIDE)
    enlarged = weights @ digits.images.astype(np.int64) @ weights.T
    pixels, labels = (enlarged * 255 // enlarged.max()).astype(np.uint8), digits.target.astype(np.uint8)
    train, test = slice(0, num_train), slice(num_train, num_train + NUM_TEST)
    np.savez(mnist / "mnist.npz", x_train=pixels[train], y_train=labels[train], x_test=pixels[test], y_test=labels[test])
    text = "\n".join(topics.topics[key] for key in sorted(topics.topics)).encode("ascii", "replace")
    (stories / "train.txt").write_bytes(text[: num_train * 64 + 1])
    (stories / "valid.txt").write_bytes(text[-NUM_TEST * 64 - 1 :])
    return {
        "cnn": ("--workload", "cnn", "--dataset", "mnist", "--data-dir", str(mnist)),
        "transformer": ("--workload", "transformer", "--dataset", "tinystories", "--data-dir", str(stories)),
    }
