"""Data for 41 steps of 8 samples, so that short runs make many steps: digits as MNIST has them, and sequences of a text."""

import numpy as np

from common import workloads
from common.config import Settings
from common.data import datasets, stored
from common.data.samples import Arrays

NUM_TRAIN, NUM_TEST = 323, 60


def write(folder, num_train=NUM_TRAIN, num_test=NUM_TEST):
    """Writes both data sets below the folder; returns {workload: the arguments that read its data}."""
    text = folder / "text"
    text.mkdir(parents=True)
    settings = workloads.resolve(Settings(workload="transformer", dataset="pydoc", data_format="npy"), 1)
    whole = datasets.READERS["pydoc"]("pydoc", workloads.workload_of(settings).model, settings)().train
    train, test = (Arrays(whole.inputs[part], whole.targets[part]) for part in (slice(num_train), slice(-num_test, None)))
    stored.write(text, settings, datasets.Dataset(train, test, f"{num_train:032x}{num_test:032x}"))
    of_text = ("--dataset", "pydoc", "--data-format", "npy", "--data-dir", str(text))
    return {"cnn": write_digits(folder / "mnist", num_train, num_test), "transformer": ("--workload", "transformer", *of_text)}


def write_digits(folder, num_train, num_test=NUM_TEST):
    """Writes digits as MNIST has them, the same ones again where there are too few; returns the arguments that read them."""
    folder.mkdir(parents=True)
    enlarged, labels = datasets.read_digits()
    pixels, labels = (enlarged * 255 // enlarged.max()).astype(np.uint8), labels.astype(np.uint8)
    indices = np.arange(num_train + num_test) % len(labels)
    train, test = indices[:num_train], indices[num_train:]
    np.savez(folder / datasets.MNIST_FILE, x_train=pixels[train], y_train=labels[train], x_test=pixels[test], y_test=labels[test])
    return "--workload", "cnn", "--dataset", "mnist", "--data-dir", str(folder)
