"""The data sets of a user's file as the training loop reads them: samples by index, collated when a batch needs them."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.data.samples import Dataset
from common.model import own_checks, own_file, own_model
from common.model.own_file import OwnFile
from common.model.own_model import OwnModel
from common.progress import OnProgress

# Samples of a data set that its digest has, evenly spaced.
NUM_IN_DIGEST = 64


@dataclass(frozen=True)
class OwnSamples:
    """A map-style data set.

    What it draws, as a random transform does, follows from `seeds`, such as the seed of the run and the epoch, and from the index of the
    sample; what collate() draws, from the seeds and the indices of the batch. `draws`: whether its first samples draw.
    """

    file: OwnFile
    dataset: Any
    draws: bool
    seeds: tuple[int, ...] = (0,)
    streamed = None
    storage = None
    use = None

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def num_losses(self) -> np.ndarray:
        """One for each sample: the loss is a mean over samples."""
        return np.ones(len(self), np.int64)

    def batches(self, indices: np.ndarray) -> Iterator[tuple[Any, Any]]:
        for row in map(np.ndarray.tolist, indices):
            # The last seed tells a batch of one sample from the sample.
            yield own_file.batch_of(self.file, self._samples(row), *self.seeds, *row, 1)

    def _samples(self, indices: list[int]) -> list[Any]:
        if not self.draws:
            before = own_file.states()
            samples = [own_file.sample(self.file, self.dataset, index) for index in indices]
            if own_file.states() == before:
                return samples
        return own_file.seeded_samples(self.file, self.dataset, indices, *self.seeds)


def reader(model: OwnModel) -> Any:
    """Returns a function that calls data() of a file. What the file does is checked now. Raises UserError for a mistake in it."""
    own_checks.check(model)

    def read(_: OnProgress) -> Dataset:
        file = model.file
        data = own_file.data_of(file)
        train, test = (OwnSamples(file, dataset, own_file.draws(file, dataset, own_model.NUM_FIRST)) for dataset in data)
        return Dataset(train, test, _digest(train, test))

    return read


def _digest(*data: OwnSamples) -> str:
    """Returns a SHA-256 of the numbers of samples, and of some of them."""
    sha256 = hashlib.sha256()

    def update(tensor: Any) -> None:
        sha256.update(tensor.numpy().tobytes())

    for samples in data:
        sha256.update(str(len(samples)).encode())
        picked = np.unique(np.linspace(0, len(samples) - 1, NUM_IN_DIGEST).astype(int))
        for batch in samples.batches(picked[:, None]):
            own_file.mapped(update, batch)
    return sha256.hexdigest()
