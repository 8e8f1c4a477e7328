"""The batches of a training, made from samples on demand, and the batches of zeros of its warm-up."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from common import workloads
from common.config import Settings
from common.data.samples import Samples, counted
from common.model import families, weights
from common.model.families import Model
from common.process.watchdog import Watchdog
from common.trainer import Batch


@dataclass(frozen=True)
class SampleBatches:
    """The batches of an epoch or an evaluation, created on demand. Each is a heartbeat of the watchdog."""

    samples: Samples
    indices: np.ndarray
    sample_weights: np.ndarray
    learning_rates: np.ndarray
    settings: Settings
    watchdog: Watchdog

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Batch]:
        precision = self.settings.precision
        input_type = families.input_type(workloads.workload_of(self.settings).model, precision)
        of_steps = zip(self.samples.batches(self.indices), self.sample_weights, self.learning_rates, strict=True)
        for (inputs, picked), weight, learning_rate in of_steps:
            self.watchdog.heartbeat()
            counts = counted(picked)
            # The sample's weight; 0 for a target that does not count.
            loss_weights = (counts * weight.reshape(-1, *[1] * (counts.ndim - 1))).astype(weights.DTYPES[precision])
            targets = picked.astype(np.int64) if np.issubdtype(picked.dtype, np.integer) else picked
            yield Batch(inputs.astype(input_type, copy=False), np.maximum(targets, 0), loss_weights, float(learning_rate))


def of_zeros(model: Model, batch_size: int, precision: str) -> Batch:
    """Makes a batch of zeros with the shapes and types of real batches."""
    inputs = np.zeros((batch_size, *model.input_shape), families.input_type(model, precision))
    targets = np.zeros((batch_size, *model.target_shape), np.int64 if model.whole_targets else weights.DTYPES[precision])
    counts = counted(targets)
    return Batch(inputs, targets, (counts / counts.size).astype(weights.DTYPES[precision]))
