"""A model of the user's own: its parameters, metric, schedule and optimizer are those of a file in plain PyTorch."""

import functools
import importlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from common.command_line import shortened
from common.model import user_file
from common.model.description import Layer, Model, Part, Samples
from common.model.user_file import UserFile
from common.model.weights import BUILT, DTYPES, Initial

# Samples from the beginning of the data, of which the batches of the checks and of the warm-up are made.
NUM_FIRST = 8


@final
@dataclass(frozen=True)
class UserModel(Model):
    """A model in a file, with the arguments of its function as a JSON object."""

    source: str
    arguments: str | None

    frameworks = ("PyTorch",)
    # A loss is a mean over all samples of a batch.
    pads = False

    @property
    def file(self) -> UserFile:
        return user_file.read(self.source, self.arguments)

    def identity(self) -> dict[str, Any]:
        """Returns what identifies the model, wherever its file lies."""
        return {"source": self.file.digest, "arguments": self.file.arguments}

    def parts(self) -> list[Part]:
        """Returns one part, which no pipeline cuts."""
        layers: dict[str, dict[str, Initial]] = {}
        for name, parameter in build(self.file, seed=0).named_parameters():
            layer, _, of_layer = name.rpartition(".")
            layers.setdefault(layer, {})[of_layer] = Initial(tuple(parameter.shape), BUILT, 0.0)
        return [Part("model", tuple(Layer(name, parameters) for name, parameters in layers.items()))]

    def initial_values(self, seed: int, precision: str) -> dict[str, np.ndarray]:
        """Returns the values of the parameters with which the module is built.

        They are not those of the trainer's module, on which Horovod takes a step of the optimizer to make its state.
        """
        parameters = build(self.file, seed).named_parameters()
        return {name: parameter.detach().numpy().astype(DTYPES[precision]) for name, parameter in parameters}

    def training_flops(self) -> int | None:
        """Counts those of a step on the first samples by PyTorch's counter; None where it finds none."""
        module = build(self.file, seed=0)
        inputs, targets = user_file.in_precision(first_batch(self, NUM_FIRST), "fp32")
        counting = importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
        with counting as counter:
            self.file.call("loss", module(inputs), targets).mean().backward()
        return round(counter.get_total_flops() / NUM_FIRST) or None

    def has_layers(self) -> bool:
        return _has_layers(self)

    def has_buffers(self) -> bool:
        return _has_buffers(self)

    def samples(self, inputs: Any, targets: Any, sample_weights: np.ndarray, precision: str) -> Samples:
        inputs, targets = user_file.in_precision((inputs, targets), precision)
        return Samples(inputs, targets, sample_weights.astype(DTYPES[precision]))

    def first_samples(self, num_samples: int, precision: str) -> Samples:
        return self.samples(*first_batch(self, num_samples), np.full(num_samples, 1 / num_samples), precision)

    def metric(self, num_correct: float, num_losses: float, sums: Sequence[float], is_finite: bool) -> float:
        """Raises UserError where what the file computes is no number that can be compared with a target, though the loss is finite."""
        value = finished(self, sums, round(num_losses)) if sums else num_correct / num_losses
        has_accuracy = self.file.has_accuracy
        if is_finite and not (0 <= value <= 1 if has_accuracy else math.isfinite(value)):
            name, expected = (
                ("finish" if self.file.has("finish") else "metric"),
                "the number of right ones" if has_accuracy else "a finite number",
            )
            self.file.refuse(name, f"{name}() gives {value:g} for the held-out samples; return {expected}")
        return value

    def optimizer_states(self) -> float | None:
        return _num_states(self) if self.file.has("optimizer") else None

    def scheduled_rates(self, learning_rate: float, optimizer: str, num_steps: int) -> list[float] | None:
        """Returns the rates of scheduler() for an optimizer that begins with this one.

        Raises UserError where the scheduler changes something else, which the trainers would not follow.
        """
        return _scheduled_rates(self, learning_rate, optimizer, num_steps) if self.file.has("scheduler") else None


def build(file: UserFile, seed: int) -> Any:
    """Calls model(), under the seed. Raises UserError where it returns no nn.Module with parameters of floating-point numbers."""
    with user_file.generators_kept():
        user_file.seed_generators(seed)
        module = file.call("model", **file.arguments)
    if not isinstance(module, user_file.torch().nn.Module):
        is_of_keras = any(base.__module__.partition(".")[0] in user_file.KERAS_PACKAGES for base in type(module).__mro__)
        file.refuse("model", user_file.OF_KERAS if is_of_keras else f"model() returns {type(module).__name__}; it must return an nn.Module")
    parameters = dict(module.named_parameters())
    if not any(parameter.requires_grad for parameter in parameters.values()):
        file.refuse("model", "model() returns a module without parameters to train")
    for name, parameter in parameters.items():
        if user_file.torch().nn.parameter.is_lazy(parameter):
            file.refuse("model", f"model() returns {name} without a shape, as of a lazy layer; give the layer its number of inputs")
        if parameter.device.type != "cpu" or not parameter.is_floating_point():
            file.refuse(
                "model", f"model() returns {name} of {parameter.dtype} on {parameter.device}; it must be floating point, on the CPU"
            )
    return module


def repeated_blocks(module: Any) -> list[Any]:
    """Returns the modules of several layers each that have one class and parameters of the same shapes: the blocks with most parameters.

    Blocks that share parameters with other modules are none, since whoever shards them would part these.
    """
    num_owners = Counter(id(parameter) for part in module.modules() for parameter in part.parameters(recurse=False))
    containers = (user_file.torch().nn.ModuleList, user_file.torch().nn.ModuleDict)
    blocks: dict[Any, list[Any]] = {}
    for part in module.modules():
        parameters = list(part.parameters())
        is_block = part is not module and not isinstance(part, containers) and any(True for _ in part.children())
        if is_block and parameters and all(num_owners[id(parameter)] == 1 for parameter in parameters):
            blocks.setdefault((type(part), *(tuple(parameter.shape) for parameter in parameters)), []).append(part)
    # A block that only wraps another one has its parameters.
    repeated = [parts for parts in blocks.values() if len(parts) > 1 and parts[1] not in list(parts[0].modules())]
    return max(repeated, key=lambda parts: len(parts) * sum(parameter.numel() for parameter in parts[0].parameters()), default=[])


def layers_of(file: UserFile, module: Any) -> list[Any]:
    """Returns the layers of a module: those of the file's layers(), a list of modules by the name of layers or blocks, or repeated blocks.

    Raises UserError where layers() returns something else.
    """
    lists = (user_file.torch().nn.ModuleList, user_file.torch().nn.Sequential)
    if not file.has("layers"):
        named: list[Any] = [getattr(module, name, None) for name in ("layers", "blocks")]
        return next((list(layers) for layers in named if isinstance(layers, lists)), None) or repeated_blocks(module)
    layers = file.call("layers", module)
    is_list = isinstance(layers, (list, tuple, *lists)) and len(layers) > 0
    if not (is_list and set(map(id, layers)) <= set(map(id, module.modules())) - {id(module)}):
        file.refuse("layers", "layers() must return a list of modules inside of the model that it is given")
    return list(layers)


def _scheduled_rates(model: UserModel, learning_rate: float, optimizer: str, num_steps: int) -> list[float]:
    file, torch = model.file, user_file.torch()
    parameters = [torch.nn.Parameter(torch.zeros(1))]
    if file.has("optimizer"):
        stepped = file.call("optimizer", iter(parameters))
    else:
        stepped = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](parameters)
    for group in stepped.param_groups:
        group["lr"] = learning_rate
    before = _options(stepped)
    scheduler = file.call("scheduler", stepped, num_steps)
    if not hasattr(scheduler, "step"):
        model.file.refuse("scheduler", f"scheduler() returns {type(scheduler).__name__}; it must return one of torch.optim.lr_scheduler")
    rates = []
    for step in range(num_steps):
        if step:
            # PyTorch warns of a scheduler that steps before its optimizer.
            stepped.step()
            file.attempt("scheduler", scheduler.step)
        of_groups = {float(group["lr"]) for group in stepped.param_groups}
        rates += of_groups
        if len(of_groups) != 1 or _options(stepped) != before:
            model.file.refuse(
                "scheduler", "scheduler() may change the learning rate alone, and for all parameters alike (cycle_momentum=False)"
            )
    return rates


def _options(optimizer: Any) -> list[dict[str, Any]]:
    """Returns the options of the groups of parameters without the learning rate."""
    names = optimizer.defaults.keys() - {"lr"}
    return [{name: group[name] for name in names} for group in optimizer.param_groups]


@functools.cache
def _has_layers(model: UserModel) -> bool:
    return bool(layers_of(model.file, build(model.file, seed=0)))


@functools.cache
def _has_buffers(model: UserModel) -> bool:
    module = build(model.file, seed=0)
    return not module.state_dict().keys() <= dict(module.named_parameters(remove_duplicate=False)).keys()


@functools.cache
def _num_states(model: UserModel) -> float:
    """Returns how many numbers optimizer() keeps for each parameter, after a step without a gradient."""
    file, module = model.file, build(model.file, seed=0)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in parameters:
        parameter.grad = user_file.torch().zeros_like(parameter)
    optimizer = file.call("optimizer", iter(parameters))
    file.attempt("optimizer", optimizer.step)
    kept = [value.numel() for state in optimizer.state.values() for value in state.values() if hasattr(value, "dim") and value.dim()]
    return sum(kept) / sum(parameter.numel() for parameter in parameters)


@functools.cache
def _first_of_data(model: UserModel) -> list[Any]:
    """Returns the first samples of the training data."""
    train, _ = user_file.data_of(model.file)
    return [user_file.seeded_sample(model.file, train, index, 0) for index in range(min(len(train), NUM_FIRST))]


def first_batch(model: UserModel, batch_size: int, start: int = 0) -> tuple[Any, Any]:
    """Returns a batch of the first samples, from the one of index `start` on, each as often as it takes."""
    samples = _first_of_data(model)
    return user_file.batch_of(model.file, [samples[index % len(samples)] for index in range(start, start + batch_size)], 0)


# The metric of a file whose number is no mean over samples: sums by metric(), of which finish() makes the number. The sums are a tensor, or
# nested tuples, lists and dictionaries of tensors and numbers. They are added up over batches and ranks.


@functools.cache
def first_sums(model: UserModel) -> Any:
    """Returns what metric() returns for the first samples: the sums of every batch are nested alike."""
    file, torch = model.file, user_file.torch()
    inputs, targets = user_file.in_precision(first_batch(model, NUM_FIRST), "fp32")
    with torch.no_grad():
        outputs = file.attempt("model", build(file, seed=0).eval(), inputs)
        return file.call("metric", outputs, targets)


def num_sums(model: UserModel) -> int:
    """Returns the number of sums; 0 for a file without finish(), whose metric is a mean."""
    return flat_sums(first_sums(model)).numel() if model.file.has("finish") else 0


def flat_sums(sums: Any, device: Any = "cpu") -> Any:
    """Returns the sums as one tensor of one dimension in float64, in which they are added up."""
    torch = user_file.torch()
    leaves, _ = _pytree().tree_flatten(sums)
    return torch.cat([torch.as_tensor(leaf, dtype=torch.float64, device=device).detach().flatten() for leaf in leaves])


def finished(model: UserModel, sums: Sequence[float], num_samples: int) -> float:
    """Returns the number that finish() makes of the sums. Raises UserError where it makes none."""
    torch = user_file.torch()
    leaves, structure = _pytree().tree_flatten(first_sums(model))
    shapes = [torch.as_tensor(leaf).shape for leaf in leaves]
    parts = torch.tensor(sums, dtype=torch.float64).split([shape.numel() for shape in shapes])
    nested = _pytree().tree_unflatten([part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)], structure)
    value = model.file.call("finish", nested, num_samples)
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        model.file.refuse("finish", f"finish() returns {shortened(repr(value))}; it must return a number")


def _pytree() -> Any:
    return importlib.import_module("torch.utils._pytree")
