"""The family of a model of the user's own: its parameters are those of the module that a file builds, and its FLOPs are counted."""

import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.model import own_file
from common.model.own_file import OwnFile
from common.model.parts import Layer, Part, Sizes
from common.model.weights import BUILT, DTYPES, Initial

# Samples from the beginning of the data, of which the batches of the checks and of the warm-up are made.
NUM_FIRST = 8


@dataclass(frozen=True)
class OwnModel:
    """A model in a file, with the arguments of its function as a JSON object."""

    source: str
    arguments: str | None

    tokens_per_sample = None

    @property
    def file(self) -> OwnFile:
        return own_file.read(self.source, self.arguments)

    def _asdict(self) -> dict[str, Any]:
        """Returns what identifies the model, wherever its file lies."""
        return {"source": self.file.digest, "arguments": self.file.arguments}

    def parts(self, sizes: Sizes, num_divisions: int) -> Sequence[Part]:
        """Returns one part, of which neither stages nor activations are known. Its FLOPs are those of `training_flops`."""
        layers: dict[str, dict[str, Initial]] = {}
        for name, shape in _shapes(self.source, self.arguments).items():
            layer, _, parameter = name.rpartition(".")
            layers.setdefault(layer, {})[parameter] = Initial(shape, BUILT, 0.0)
        return [Part("model", tuple(Layer(name, parameters, flops=0) for name, parameters in layers.items()))]


@functools.cache
def _shapes(source: str, arguments: str | None) -> dict[str, tuple[int, ...]]:
    module = own_file.build(own_file.read(source, arguments), seed=0)
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


@functools.cache
def has_layers(model: OwnModel) -> bool:
    """Returns whether the module has layers that can be computed again, or sharded, one at a time."""
    return bool(own_file.layers_of(model.file, own_file.build(model.file, seed=0)))


@functools.cache
def has_buffers(model: OwnModel) -> bool:
    """Returns whether the module has state beside its parameters, such as running statistics."""
    module = own_file.build(model.file, seed=0)
    return not module.state_dict().keys() <= dict(module.named_parameters(remove_duplicate=False)).keys()


def initial_values(model: OwnModel, seed: int, precision: str) -> dict[str, np.ndarray]:
    """Returns the values of the parameters with which the module is built.

    They are not those of the trainer's module, on which Horovod takes a step of the optimizer to make its state.
    """
    parameters = own_file.build(model.file, seed).named_parameters()
    return {name: parameter.detach().numpy().astype(DTYPES[precision]) for name, parameter in parameters}


def learning_rates(model: OwnModel, learning_rate: float, optimizer: str, num_steps: int) -> list[float]:
    """Returns the learning rate of each step by the file's scheduler(), of an optimizer that begins with this one.

    Raises UserError where the scheduler changes something else, which the trainers would not follow.
    """
    file, torch = model.file, own_file.torch()
    line, parameters = own_file.line_of(file, "scheduler"), [torch.nn.Parameter(torch.zeros(1))]
    if file.has("optimizer"):
        stepped = own_file.call(file, "optimizer", iter(parameters))
    else:
        stepped = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](parameters)
    for group in stepped.param_groups:
        group["lr"] = learning_rate
    before = _options(stepped)
    scheduler = own_file.call(file, "scheduler", stepped, num_steps)
    if not hasattr(scheduler, "step"):
        own_file.refuse(file, line, f"scheduler() returns {type(scheduler).__name__}; it must return one of torch.optim.lr_scheduler")
    rates = []
    for step in range(num_steps):
        if step:
            # PyTorch warns of a scheduler that steps before its optimizer.
            stepped.step()
            own_file.attempt(file, line, scheduler.step)
        of_groups = {float(group["lr"]) for group in stepped.param_groups}
        rates += of_groups
        if len(of_groups) != 1 or _options(stepped) != before:
            own_file.refuse(
                file, line, "scheduler() may change the learning rate alone, and for all parameters alike (cycle_momentum=False)"
            )
    return rates


def _options(optimizer: Any) -> list[dict[str, Any]]:
    """Returns the options of the groups of parameters without the learning rate."""
    names = optimizer.defaults.keys() - {"lr"}
    return [{name: group[name] for name in names} for group in optimizer.param_groups]


@functools.cache
def num_states(model: OwnModel) -> float:
    """Returns how many numbers optimizer() keeps for each parameter, after a step without a gradient."""
    file, module = model.file, own_file.build(model.file, seed=0)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in parameters:
        parameter.grad = own_file.torch().zeros_like(parameter)
    optimizer = own_file.call(file, "optimizer", iter(parameters))
    own_file.attempt(file, own_file.line_of(file, "optimizer"), optimizer.step)
    kept = [value.numel() for state in optimizer.state.values() for value in state.values() if hasattr(value, "dim") and value.dim()]
    return sum(kept) / sum(parameter.numel() for parameter in parameters)


@functools.cache
def first_samples(file_path: str, arguments: str | None) -> list[Any]:
    """Returns the first samples of the training data."""
    file = own_file.read(file_path, arguments)
    train, _ = own_file.data_of(file)
    return [own_file.seeded_sample(file, train, index, 0) for index in range(min(len(train), NUM_FIRST))]


def first_batch(model: OwnModel, batch_size: int, start: int = 0) -> tuple[Any, Any]:
    """Returns a batch of the first samples, from the one of index `start` on, each as often as it takes."""
    samples = first_samples(model.source, model.arguments)
    return own_file.batch_of(model.file, [samples[index % len(samples)] for index in range(start, start + batch_size)], 0)


def training_flops(model: OwnModel) -> int | None:
    """Counts the operations of matrix products, convolutions and attention to train on one sample, by PyTorch's counter.

    It is None where the counter finds none.
    """
    file, num_samples = model.file, NUM_FIRST
    module = own_file.build(file, seed=0)
    inputs, targets = own_file.in_precision(first_batch(model, num_samples), "fp32")
    counting = importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
    with counting as counter:
        own_file.call(file, "loss", module(inputs), targets).mean().backward()
    return round(counter.get_total_flops() / num_samples) or None
