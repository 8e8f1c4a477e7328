"""A workload in one process, in float64, as experiments and observations train it: its samples, its module and a step.

Dropout is off and norms are those of evaluation: batch norm, whose statistics are those of a rank's batch, is left out.
"""

import copy
import dataclasses
import importlib
import time
from collections.abc import Iterable
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


class Pass(NamedTuple):
    """What a forward and a backward pass of a batch give: the tensors of the outputs, the loss, and the gradients by name."""

    outputs: list[Any]
    loss: Any
    gradients: dict[str, Any]


class Subject(NamedTuple):
    """What is examined: a workload in float64, its file and its samples."""

    settings: Settings
    model: Model
    file: ModelFile
    criterion: Any
    train: Samples
    test: Samples


class Batch(NamedTuple):
    inputs: Any
    targets: Any
    weights: Any


class Halved(NamedTuple):
    """A batch and its halves. The losses of the halves add up to that of the batch."""

    whole: Batch
    first: Batch
    second: Batch


def subject_of(settings: Settings) -> Subject:
    settings = dataclasses.replace(settings, precision="fp64", dropout=False, recompute=False, num_workers=0)
    model, data = workloads.workload_of(settings).model, datasets.loader(settings)()
    file = model.file_in("pytorch")
    train, test = (samples.seeded(settings.seed, 1) for samples in data[:2])
    return Subject(settings, model, file, models().Criterion(settings), train, test)


def models() -> Any:
    """Imports what takes PyTorch, which the process that asks need not have."""
    return importlib.import_module("frameworks.shared.pytorch.modules")


def halved(subject: Subject, samples: Samples) -> Halved:
    """Collates samples that are spread over a data set, and each half of them."""
    half = max(1, min(len(samples), NUM_SAMPLES) // 2)
    indices = np.linspace(0, len(samples) - 1, 2 * half).astype(int)
    weight = 1 / (samples.num_losses * len(indices))
    return Halved(*(batch_of(subject, samples, part, weight) for part in (indices, indices[:half], indices[half:])))


def batch_of(subject: Subject, samples: Samples, indices: np.ndarray, weight: float) -> Batch:
    to_tensor = importlib.import_module("frameworks.shared.pytorch.steps").mapped
    batch = subject.model.samples(*samples.batch(indices), np.full(len(indices), weight), "fp64")
    return Batch(*(to_tensor(lambda tensor: tensor, part) for part in batch))


def digests_of(samples: Samples, indices: Iterable[int] | None = None, part: int | None = None) -> dict[str, str]:
    """Returns digests of samples, or of their inputs (part 0), by index: all, or as many spread ones as the limits let."""
    digests, begun = {}, time.perf_counter()
    for index in np.unique(np.linspace(0, len(samples) - 1, MAX_READ).astype(int)) if indices is None else indices:
        sample = samples.batch(np.array([index]))
        digests[str(index)] = user_data.digest_of(sample if part is None else sample[part])
        if time.perf_counter() - begun > LIMIT_SECONDS:
            break
    return digests


def module_of(subject: Subject, spread: float = 0.0) -> Any:
    """Builds the module. `spread`: the standard deviation of what is added to its parameters."""
    module, torch = models().build(subject.settings, "cpu", Ranks()), model_file.torch()
    with torch.no_grad(), model_file.seeded(round(spread)):
        for parameter in module.parameters() if spread else ():
            parameter.add_(spread * torch.randn_like(parameter))
    return prepared(module)


def prepared(module: Any) -> Any:
    """Makes a module train, with the norms of evaluation."""
    module.train()
    for layer in module.modules():
        if getattr(layer, "running_mean", None) is not None:
            layer.eval()
    return module


def outputs_of(subject: Subject, module: Any, inputs: Any) -> Any:
    return subject.file.attempt("model", module, inputs)


def step_of(subject: Subject, module: Any, batch: Batch, seed: int = 0, factor: float = 1.0) -> Pass:
    inputs, targets, weights = copy.deepcopy(batch)
    module.zero_grad()
    with model_file.seeded(seed):
        outputs = outputs_of(subject, module, inputs)
        loss = subject.criterion.loss(outputs, targets, weights)
        (factor * loss).backward()
    gradients = {name: parameter.grad.to_dense() for name, parameter in module.named_parameters() if parameter.grad is not None}
    return Pass(tensors_of(outputs), loss.detach(), gradients)


def tensors_of(values: Any) -> list[Any]:
    tensors: list[Any] = []
    user_data.mapped(lambda tensor: tensors.append(tensor.detach().clone()), values)
    return tensors
