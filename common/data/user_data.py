"""The data sets of a user's file as the training loop reads them: samples by index, collated when a batch needs them."""

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from common.config import Settings
from common.data.samples import Dataset
from common.errors import UserError
from common.model import user_checks, user_file, user_model
from common.model.user_file import UserFile
from common.model.user_model import UserModel
from common.progress import OnProgress

# Samples of a data set that its digest has, evenly spaced.
NUM_IN_DIGEST = 64


@dataclass(frozen=True)
class UserSamples:
    """A map-style data set.

    What it draws, as a random transform does, follows from `seeds`, such as the seed of the run and the epoch, and from the index of the
    sample; what collate() draws, from the seeds and the indices of the batch. `draws`: whether its first samples draw. `in_threads`:
    whether batches are read while training goes on, which has the generators then.
    """

    file: UserFile
    dataset: Any
    draws: bool
    seeds: tuple[int, ...] = (0,)
    in_threads: bool = False

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def num_losses(self) -> np.ndarray:
        """One for each sample: the loss is a mean over samples."""
        return np.ones(len(self), np.int64)

    def seeded(self, *seeds: int) -> Self:
        return dataclasses.replace(self, seeds=seeds)

    def batch(self, indices: np.ndarray) -> tuple[Any, Any]:
        row = indices.tolist()
        if self.in_threads:
            # Nothing here draws.
            return user_file.collated(self.file, [user_file.sample(self.file, self.dataset, index) for index in row])
        # The last seed tells a batch of one sample from the sample.
        return user_file.batch_of(self.file, self._samples(row), *self.seeds, *row, 1)

    def _samples(self, indices: list[int]) -> list[Any]:
        if not self.draws:
            before = user_file.states()
            samples = [user_file.sample(self.file, self.dataset, index) for index in indices]
            if user_file.states() == before:
                return samples
        return user_file.seeded_samples(self.file, self.dataset, indices, *self.seeds)


def reader(model: UserModel, settings: Settings) -> Any:
    """Returns a function that calls data() of a file. What the file does is checked now. Raises UserError for a mistake in it.

    The function raises it for data that draw random numbers, with --num-workers: threads share the generators with training.
    """
    user_checks.check(model)
    in_threads = settings.num_workers > 0

    def read(_: OnProgress) -> Dataset:
        file = model.file
        data = user_file.data_of(file)
        draw = [user_file.draws(file, dataset, user_model.NUM_FIRST) for dataset in data]
        if in_threads and (any(draw) or user_file.collate_draws(file, data[0], user_model.NUM_FIRST)):
            raise UserError("--num-workers is for data that draw no random numbers, and those of the --model do; leave it out")
        train, test = (UserSamples(file, dataset, draws, in_threads=in_threads) for dataset, draws in zip(data, draw, strict=True))
        return Dataset(train, test, _digest(train, test))

    return read


def _digest(*data: UserSamples) -> str:
    """Returns a SHA-256 of the numbers of samples, and of some of them."""
    sha256 = hashlib.sha256()

    def update(tensor: Any) -> None:
        sha256.update(user_file.bytes_of(tensor))

    for samples in data:
        sha256.update(str(len(samples)).encode())
        picked = np.unique(np.linspace(0, len(samples) - 1, NUM_IN_DIGEST).astype(int))
        for batch in map(samples.batch, picked[:, None]):
            user_file.mapped(update, batch)
    return sha256.hexdigest()
