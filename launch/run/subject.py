"""A workload in one process, in float64, as experiments train it: its samples, its module, a step, and what differs of it.

Dropout is off and norms are those of evaluation: batch norm, whose statistics are those of a rank's batch, is left out.
"""

import contextlib
import copy
import dataclasses
import importlib
import math
import pickle
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from common import workloads
from common.config import Settings
from common.data import datasets
from common.data.samples import Samples
from common.model import model_file, user_data
from common.model.description import Model
from common.model.model_file import ModelFile
from common.ranks.launcher_variables import Ranks

# Samples of the batch that is cut into halves, spread over the data.
NUM_SAMPLES = 16
# Samples of a data set that are read, where that takes no longer.
MAX_READ, LIMIT_SECONDS = 2048, 5.0
# Relative: what rounding alone may change.
TOLERANCE = 1e-9


class Pass(NamedTuple):
    """What a forward and a backward pass of a batch give: the tensors of the outputs, the loss, and the gradients by name."""

    outputs: list[Any]
    loss: Any
    gradients: dict[str, Any]


class Batch(NamedTuple):
    inputs: Any
    targets: Any
    weights: Any


class Halved(NamedTuple):
    """A batch and its halves. The losses of the halves add up to that of the batch."""

    whole: Batch
    first: Batch
    second: Batch


class Subject(NamedTuple):
    """What is examined: a workload in float64, its file and its samples."""

    settings: Settings
    model: Model
    file: ModelFile
    criterion: Any
    train: Samples
    test: Samples

    def module(self, spread: float = 0.0) -> Any:
        """Builds the module. `spread`: the standard deviation of what is added to its parameters."""
        module, torch = models().build(self.settings, "cpu", Ranks()), model_file.torch()
        with torch.no_grad(), model_file.seeded(round(spread)):
            for parameter in module.parameters() if spread else ():
                parameter.add_(spread * torch.randn_like(parameter))
        return prepared(module)

    def batch(self, samples: Samples, indices: np.ndarray, weight: float) -> Batch:
        to_tensor = importlib.import_module("frameworks.shared.pytorch.steps").mapped
        batch = self.model.samples(*samples.batch(indices), np.full(len(indices), weight), "fp64")
        return Batch(*(to_tensor(lambda tensor: tensor, part) for part in batch))

    def halved(self, samples: Samples) -> Halved:
        """Collates samples that are spread over a data set, and each half of them."""
        half = max(1, min(len(samples), NUM_SAMPLES) // 2)
        indices = np.linspace(0, len(samples) - 1, 2 * half).astype(int)
        weight = 1 / (samples.num_losses * len(indices))
        return Halved(*(self.batch(samples, part, weight) for part in (indices, indices[:half], indices[half:])))

    def outputs(self, module: Any, inputs: Any) -> Any:
        return self.file.attempt("model", module, inputs)

    def step(self, module: Any, batch: Batch, seed: int = 0, factor: float = 1.0) -> Pass:
        """Computes the outputs, and the loss and gradients times a factor."""
        inputs, targets, weights = copy.deepcopy(batch)
        module.zero_grad()
        with model_file.seeded(seed):
            outputs = self.outputs(module, inputs)
            loss = self.criterion.loss(outputs, targets, weights)
            (factor * loss).backward()
        gradients = {name: parameter.grad.to_dense() for name, parameter in module.named_parameters() if parameter.grad is not None}
        return Pass(tensors_of(outputs), loss.detach(), gradients)

    def evaluated(self, module: Any, batch: Batch) -> list[Any]:
        module.eval()
        with model_file.seeded(0):
            return tensors_of(self.outputs(module, copy.deepcopy(batch.inputs)))

    def sums(self, module: Any, batch: Batch) -> Any:
        """Returns what metric() gives for a batch, without the loss and the number of samples."""
        inputs, targets, weights = copy.deepcopy(batch)
        _, right, _, *sums = self.criterion.totals(self.outputs(module, inputs), targets, (weights > 0).double()).detach()
        return model_file.torch().stack(sums or [right])

    def step_seconds(self) -> float:
        """Returns the seconds of a step of a batch: the shorter of two."""
        module, durations = self.module(), []
        size = self.settings.batch_size or workloads.workload_of(self.settings).batch_size
        for _ in range(2):
            begun = time.perf_counter()
            self.step(module, self.batch(self.train, np.arange(size) % len(self.train), 1 / size))
            durations.append(time.perf_counter() - begun)
        return min(durations)


def subject_of(settings: Settings) -> Subject:
    settings = dataclasses.replace(settings, precision="fp64", dropout=False, num_workers=0)
    model, data = workloads.workload_of(settings).model, datasets.loader(settings)()
    file = model.file_in("pytorch")
    train, test = (samples.seeded(settings.seed, 1) for samples in data[:2])
    return Subject(settings, model, file, models().Criterion(settings), train, test)


def models() -> Any:
    """Imports what takes PyTorch, which the process that asks need not have."""
    return importlib.import_module("frameworks.shared.pytorch.modules")


def prepared(module: Any) -> Any:
    """Makes a module train, with the norms of evaluation."""
    module.train()
    for layer in module.modules():
        if getattr(layer, "running_mean", None) is not None:
            layer.eval()
    return module


def digests_of(samples: Samples, indices: Iterable[int] | None = None, part: int | None = None) -> dict[str, str]:
    """Returns digests of samples, or of their inputs (part 0), by index: all, or as many spread ones as the limits let."""
    digests, begun = {}, time.perf_counter()
    for index in np.unique(np.linspace(0, len(samples) - 1, MAX_READ).astype(int)) if indices is None else indices:
        sample = samples.batch(np.array([index]))
        digests[str(index)] = user_data.digest_of(sample if part is None else sample[part])
        if time.perf_counter() - begun > LIMIT_SECONDS:
            break
    return digests


def tensors_of(values: Any) -> list[Any]:
    tensors: list[Any] = []
    user_data.mapped(lambda tensor: tensors.append(tensor.detach().clone()), values)
    return tensors


def flat(tensors: Iterable[Any]) -> Any:
    return model_file.torch().cat([tensor.flatten() for tensor in tensors])


def first_half(tensor: Any) -> Any:
    values = tensor.detach().flatten()
    return values[: (len(values) + 1) // 2]


def joined(whole: Any, first: Any, second: Any) -> Any:
    """Returns the outputs of the samples of the halves of a batch; None where the first axis is not theirs, or others are padded."""
    has_samples = first.dim() > 0 and first.shape == second.shape and whole.shape == (2 * len(first), *first.shape[1:])
    return model_file.torch().cat([first, second]) if has_samples else None


def passes_differ(first: Pass, second: Pass) -> bool:
    return differ([*first.outputs, first.loss], [*second.outputs, second.loss])


def differ(tensors: Iterable[Any], expected: Iterable[Any]) -> bool:
    """Whether tensors differ by more than rounding."""
    return any(distance(*pair) > TOLERANCE for pair in zip(tensors, expected, strict=True))


def distance(tensor: Any, expected: Any) -> float:
    """Returns the sum of the differences of two tensors, relative to that of the values."""
    if tensor.shape != expected.shape:
        return math.inf
    difference = float((tensor.double() - expected.double()).abs().sum())
    return difference / max(float(expected.double().abs().sum()), 1e-300) if difference else 0.0


def trained_parameters(module: Any) -> list[str]:
    return [name for name, parameter in module.named_parameters() if parameter.requires_grad]


def values_of(module: Any) -> dict[str, bytes]:
    """Returns the buffers and the layers' attributes by name, without parameters and layers."""
    values = {name: user_data.bytes_of(buffer) for name, buffer in module.named_buffers()}
    for prefix, layer in module.named_modules():
        for name, value in vars(layer).items():
            if not name.startswith("_"):
                with contextlib.suppress(Exception):
                    values[f"{prefix}.{name}" if prefix else name] = pickle.dumps(value)
    return values


def changed_names(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    return [name for name, value in after.items() if before.get(name) != value]
