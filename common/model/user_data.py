"""The data of a user's file: samples by index, which are collated when a batch needs them, and the random numbers that they draw."""

import contextlib
import copy
import ctypes
import dataclasses
import functools
import hashlib
import pickle
import random
import threading
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.random.mtrand import get_bit_generator

from common.command_line import shortened
from common.errors import UserError
from common.model import model_file
from common.model.model_file import ModelFile

# Samples from the beginning of the data, of which the batches of the checks and of the warm-up are made.
NUM_FIRST = 8
# Samples of a data set that its digest has, evenly spaced.
NUM_IN_DIGEST = 64
# The Mersenne Twister's: 624 words and the position in them.
NUMPY_STATE_BYTES = 4 * 625
READING = threading.Lock()


@dataclass(frozen=True)
class UserSamples:
    """A map-style data set.

    What it draws, as a random transform does, follows from `seeds`, such as the seed of the run and the epoch, and from the index of the
    sample; what collate() draws, from the seeds and the indices of the batch. `draws`: whether its first samples draw. `in_threads`:
    whether batches are read while training goes on, which has the generators then.
    """

    file: ModelFile
    dataset: Any
    draws: bool
    seeds: tuple[int, ...] = (0,)
    in_threads: bool = False

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def num_losses(self) -> int:
        """One: the loss is a mean over samples."""
        return 1

    def seeded(self, *seeds: int) -> Self:
        return dataclasses.replace(self, seeds=seeds)

    def batch(self, indices: np.ndarray) -> tuple[Any, Any]:
        row = indices.tolist()
        if self.in_threads:
            # Nothing here draws. A data set that has a file open must not be read by two threads at once.
            with READING:
                samples = [sample(self.file, self.dataset, index) for index in row]
            return collated(self.file, samples)
        # The last seed tells a batch of one sample from the sample.
        return batch_of(self.file, self._samples(row), *self.seeds, *row, 1)

    def _samples(self, indices: list[int]) -> list[Any]:
        if not self.draws:
            before = states()
            samples = [sample(self.file, self.dataset, index) for index in indices]
            if states() == before:
                return samples
        return seeded_samples(self.file, self.dataset, indices, *self.seeds)


def read(file: ModelFile, in_threads: bool) -> tuple[UserSamples, UserSamples, str]:
    """Calls data() of a file. Returns the training and the held-out samples, and their digest.

    Raises UserError for a mistake in it, and for data that draw random numbers and are read `in_threads`: these share the generators with
    training.
    """
    data = data_of(file)
    draw = [draws(file, dataset) for dataset in data]
    if in_threads and (any(draw) or draws(file, data[0], collates=True)):
        raise UserError("--num-workers is for data that draw no random numbers, and those of the --model do; leave it out")
    train, test = (UserSamples(file, dataset, draws, in_threads=in_threads) for dataset, draws in zip(data, draw, strict=True))
    return train, test, _digest(train, test)


def _digest(*data: UserSamples) -> str:
    """Returns a SHA-256 of the numbers of samples, and of some of them."""
    sha256 = hashlib.sha256()

    def update(tensor: Any) -> None:
        sha256.update(bytes_of(tensor))

    for samples in data:
        sha256.update(str(len(samples)).encode())
        picked = np.unique(np.linspace(0, len(samples) - 1, NUM_IN_DIGEST).astype(int))
        for batch in map(samples.batch, picked[:, None]):
            mapped(update, batch)
    return sha256.hexdigest()


def states() -> tuple[bytes, bytes, tuple[Any, ...]]:
    """Returns the states of PyTorch's, NumPy's and Python's generators, which a draw changes.

    NumPy's is read from its memory: get_state() takes a tenth of a millisecond, and every batch is watched.
    """
    generator = get_bit_generator()
    is_default = isinstance(generator, np.random.MT19937)
    of_numpy = ctypes.string_at(generator.ctypes.state_address, NUMPY_STATE_BYTES) if is_default else repr(generator.state).encode()
    return model_file.torch().get_rng_state().numpy().tobytes(), of_numpy, random.getstate()


def draws(file: ModelFile, dataset: Any, collates: bool = False) -> bool:
    """Returns whether one of the first samples draws random numbers, as augmentation does; or, if it `collates`, collate() of them."""
    with model_file.generators_kept():
        before = states()
        samples = [sample(file, dataset, index) for index in range(min(len(dataset), NUM_FIRST))]
        if collates:
            collated(file, samples)
        return states() != before


def seeded_samples(file: ModelFile, dataset: Any, indices: Iterable[int], *seeds: int) -> list[Any]:
    """Returns samples whose random numbers follow from the seeds and their index alone, and so not from the number of ranks.

    Keeping the generators takes as long as seeding them, which is done for each.
    """
    samples = []
    with model_file.generators_kept():
        for index in indices:
            model_file.seed_generators(model_file.seed_of(*seeds, index))
            samples.append(sample(file, dataset, index))
    return samples


@functools.cache
def data_of(file: ModelFile) -> tuple[Any, Any]:
    """Calls data(), once in a process. Raises UserError where it does not return two map-style data sets."""
    with model_file.generators_kept():
        model_file.seed_generators(0)
        data = file.call("data")
    if not isinstance(data, tuple | list) or len(data) != 2:
        file.refuse("data", "data() must return two data sets, for training and held out: return train, test")
    loading = model_file.torch().utils.data
    for name, dataset in zip(("training", "held-out"), data, strict=True):
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")) or isinstance(dataset, loading.IterableDataset):
            of_loader = "return its data set, of which Tandem makes batches (BATCH_SIZE, collate(), --num-workers)"
            remedy = of_loader if isinstance(dataset, loading.DataLoader) else "a list of its samples has them"
            file.refuse("data", f"the {name} data set of data() is {type(dataset).__name__}; it must have len() and [i]: {remedy}")
        if not file.attempt("data", len, dataset):
            file.refuse("data", f"the {name} data set of data() is empty")
    return data[0], data[1]


def sample(file: ModelFile, dataset: Any, index: int) -> Any:
    """Returns a sample of a data set. Raises UserError where it is no pair."""
    pair = file.attempt("data", dataset.__getitem__, index)
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        file.refuse("data", f"a data set of data() has {shortened(repr(pair))} at {index}; a sample is a pair (inputs, target)")
    return pair


def batch_of(file: ModelFile, samples: list[Any], *seeds: int) -> tuple[Any, Any]:
    """Collates samples into inputs and targets as a DataLoader does, or by collate(), whose random numbers follow from the seeds."""
    if file.has("collate"):
        with model_file.seeded(*seeds):
            return collated(file, samples)
    return collated(file, samples)


def collated(file: ModelFile, samples: list[Any]) -> tuple[Any, Any]:
    """Does as `batch_of`, with the generators as they are."""
    if file.has("collate"):
        pair = file.call("collate", samples)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            file.refuse("collate", f"collate() returns {shortened(repr(pair))}; it must return a pair (inputs, targets)")
        return pair[0], pair[1]
    return tuple(file.attempt("data", model_file.torch().utils.data.default_collate, samples))


def mapped(function: Callable[[Any], Any], values: Any) -> Any:
    """Applies a function to each tensor and array of numbers in nested tuples, lists, dictionaries and objects, of whatever class.

    Objects are copied. Other values, such as texts, stay as they are.
    """
    if _has_numbers(values):
        return function(values)
    if isinstance(values, tuple | list):
        changed = [mapped(function, value) for value in values]
        # A packed sequence is a named tuple that takes other arguments.
        return values._make(changed) if hasattr(values, "_make") else type(values)(changed)  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(values, MutableMapping):
        copied = copy.copy(values)
        copied.update({key: mapped(function, value) for key, value in values.items()})
        return copied
    # A class has fields too.
    is_dataclass = dataclasses.is_dataclass(values) and not isinstance(values, type)
    if not is_dataclass and not any(map(_contains_numbers, getattr(values, "__dict__", {}).values())):
        return values
    copied = copy.copy(values)
    names = [field.name for field in dataclasses.fields(values)] if is_dataclass else list(vars(values))
    for name in names:
        # A dataclass may be frozen; what a copy has may refer to it.
        object.__setattr__(copied, name, mapped(function, getattr(copied, name)))
    return copied


def _contains_numbers(values: Any) -> bool:
    parts = values.values() if isinstance(values, MutableMapping) else values if isinstance(values, tuple | list) else ()
    return _has_numbers(values) or any(map(_contains_numbers, parts))


def _has_numbers(values: Any) -> bool:
    return hasattr(values, "untyped_storage") or (isinstance(values, np.ndarray) and values.dtype.kind in "biufc")


def bytes_of(tensor: Any) -> bytes:
    """Returns the numbers of a tensor, of whatever type, as bytes."""
    tensor = model_file.torch().as_tensor(tensor)
    return tensor.detach().to_dense().contiguous().flatten().view(model_file.torch().uint8).numpy().tobytes()


def digest_of(values: Any) -> str:
    """Returns a SHA-256 of the numbers in nested values, and of what else they have and can be pickled."""
    sha256 = hashlib.sha256()
    mapped(lambda tensor: sha256.update(str(tuple(tensor.shape)).encode() + bytes_of(tensor)), values)
    with contextlib.suppress(Exception):
        sha256.update(pickle.dumps(mapped(lambda _: None, values)))
    return sha256.hexdigest()


def in_precision(values: Any, precision: str) -> Any:
    """Converts the floating-point numbers of a batch to the type of the parameters. No gradient goes into the data."""

    def converted(tensor: Any) -> Any:
        tensor = model_file.torch().as_tensor(tensor)
        if not tensor.is_floating_point():
            return tensor
        return (tensor.double() if precision == "fp64" else tensor.float()).detach()

    return mapped(converted, values)
