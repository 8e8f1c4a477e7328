"""Real data in, arrays out. Nothing is downloaded: the defaults come with Python and scikit-learn, the rest from local files."""

import hashlib
from typing import NamedTuple

import numpy as np

from common import images, texts
from common.weights import DTYPES
from common.workloads import workload_of


class Dataset(NamedTuple):
    """Inputs and targets of the training and of the held-out samples, samples first, and a digest of the values and their split.

    A target is a whole number, not counted where it is below 0, or a vector of probabilities along the last axis. A data
    set for throughput alone has no held-out samples.
    """

    train_inputs: np.ndarray
    train_targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray
    digest: str


def loader(settings):
    """A function of no arguments that reads the data of these settings. What it needs is imported and looked for now.

    The data itself is not touched, so that reading it can be on the clock. Raises UserError where it is not there; the
    function does where it is damaged.
    """
    workload = workload_of(settings)
    name = settings.dataset or workload.datasets[0]
    if name == "digits":
        read = images.digits(settings.precision)
    elif name == "mnist":
        read = images.mnist(settings.data_dir, settings.precision)
    elif name == "random":
        read = _random(workload.model, settings.precision)
    else:
        read = texts.reader(name, settings.data_dir, workload.model.context)
    return lambda: Dataset(*read())


NUM_RANDOM_SAMPLES = 2048


def _random(model, precision):
    """Vectors drawn from [0, 1), as the ALCF tutorial has them: sources (2048, 1, 512), targets (2048, 20, 512).

    The loss is PyTorch's cross entropy of the output with the targets as probabilities over their positions.
    """

    def read():
        drawn = np.random.default_rng(0).random((NUM_RANDOM_SAMPLES, *model.input_shape))
        values = drawn.astype(DTYPES[precision])
        targets = values[:, model.source_length :].transpose(0, 2, 1)
        return values, targets, values[:0], targets[:0], hashlib.sha256(drawn.data).hexdigest()

    return read


def counted(targets):
    """Which of the targets count, a boolean for each single loss: (samples, …)."""
    return targets >= 0 if np.issubdtype(targets.dtype, np.integer) else np.ones(targets.shape[:-1], bool)
