"""The samples of a dataset as the training loop reads them, a batch at a time and also ahead."""

import math
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

# Batches that each worker reads ahead, as many as those of PyTorch's DataLoader.
NUM_AHEAD = 2

Item = TypeVar("Item")
Result = TypeVar("Result")


class Samples(Protocol):
    """Samples with their targets."""

    @property
    def num_losses(self) -> int:
        """The number of losses of each sample."""
        ...

    def __len__(self) -> int: ...

    def batch(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Returns the inputs and targets of the samples at these indices, in their order."""
        ...

    def seeded(self, *seeds: int) -> Self:
        """Returns the samples with what they draw following from these seeds."""
        ...


@dataclass(frozen=True)
class Arrays:
    """Samples along the first axis of arrays, of NumPy or, with `rows`, of a file. `rows` reads those at some indices.

    A target is an integer.
    """

    inputs: Any
    targets: Any
    rows: Callable[[Any, np.ndarray], np.ndarray] = operator.getitem

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def num_losses(self) -> int:
        return math.prod(self.targets.shape[1:])

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.rows(self.inputs, indices), self.rows(self.targets, indices)

    def seeded(self, *_: int) -> Self:
        return self


class Dataset(NamedTuple):
    """Training and held-out samples, and a digest of their values and their split, the same on disk as in memory.

    A dataset for throughput only has no held-out samples.
    """

    train: Samples
    test: Samples
    digest: str


def read_ahead(read: Callable[[Item], Result], items: Iterable[Item], num_workers: int) -> Iterator[Result]:
    """Yields read(item) for each of the items, in their order; workers read NUM_AHEAD items each before they are asked for.

    An exception of `read` is raised where its item is asked for. Where the iteration ends early, items that are being read are finished in
    the background.
    """
    if not num_workers:
        yield from map(read, items)
        return
    # Threads, since arrays pass from a thread without a copy, and processes must not fork under MPI.
    pool = ThreadPoolExecutor(num_workers, "reader")
    try:
        pending = deque()
        for item in items:
            pending.append(pool.submit(read, item))
            if len(pending) > NUM_AHEAD * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        # Not waiting: Ctrl-C must not wait for a file system that hangs.
        pool.shutdown(wait=False, cancel_futures=True)
