"""The data that is converted: all of it in memory, or images that are read when they are written."""

import hashlib
import json
from typing import NamedTuple

import numpy as np

from common.data import datasets, image_folders
from common.workloads import workload_of


class Data(NamedTuple):
    """Arrays that are indexed by arrays of numbers, as those of datasets.Dataset are.

    `identity`: tells this data from other data before all of it is read. `digest`: the data's own if it is known, else one that is updated
    with the training inputs in their order; `digest_of_all` ends it.
    """

    train_inputs: np.ndarray
    train_targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray
    identity: str
    digest: object

    def add_to_digest(self, inputs):
        if not isinstance(self.digest, str):
            self.digest.update(np.ascontiguousarray(inputs).data)

    def digest_of_all(self):
        return self.digest if isinstance(self.digest, str) else image_folders.end_digest(self.digest, self.train_targets)


def load(settings):
    """A function of on_progress that gives the Data of resolved settings. Files are located now; raises UserError for missing ones."""
    if settings.dataset != "imagefolder":
        read = datasets.loader(settings)
        return lambda on_progress: _in_memory(read(on_progress))
    images, labels = image_folders.find_images(settings.data_dir, workload_of(settings).model)
    described = [(str(path.relative_to(settings.data_dir)), path.stat().st_size, path.stat().st_mtime_ns) for path in images.files]
    identity = hashlib.sha256(json.dumps(described).encode()).hexdigest()
    return lambda _: Data(images, labels, images[[]], labels[:0], identity, image_folders.begin_digest(images.shape))


def _in_memory(data):
    return Data(data.train_inputs, data.train_targets, data.test_inputs, data.test_targets, data.digest, data.digest)
