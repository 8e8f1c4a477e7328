"""A model of the user's own: its parameters, metric, schedule and optimizer are those of a file in plain PyTorch."""

import contextlib
import functools
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from common import apart
from common.command_line import shortened
from common.errors import UserError
from common.model import model_file, user_data
from common.model.description import Layer, Model, Part, Result, Samples, Workload
from common.model.model_file import ModelFile
from common.model.user_data import NUM_FIRST
from common.model.weights import BUILT, DTYPES, OPTIMIZER_STATE, Initial

# The name of the data set of a file.
DATASET = "file"
# The learning rates of a file that has none.
LEARNING_RATES = {"sgd": 0.01, "adam": 0.001}
# The function of a file that decides a setting.
DECIDING = {"optimizer": "optimizer", "momentum": "optimizer", "schedule": "scheduler"}
# Steps of the scheduler, of which it may have phases.
NUM_SCHEDULED = 20


class Described(NamedTuple):
    """What all but a rank knows of a user's file, whose code it does not run: `functions` are those of the file's that it has.

    `num_states`: how many numbers optimizer() keeps for each parameter; None without one.
    """

    digest: str
    functions: list[str]
    constants: dict[str, bool | int | float | None]
    has_accuracy: bool
    parameters: dict[str, tuple[int, ...]]
    has_buffers: bool
    num_states: float | None


@functools.cache
def described(source: str, arguments: str | None) -> Described:
    """Describes a file, which a process of its own reads. Raises UserError for a mistake in it."""
    return apart.call(f"--model {source}", describe, source, arguments)


def describe(source: str, arguments: str | None) -> Described:
    """Reads a file and builds its model once. Raises UserError for a mistake in them."""
    file = model_file.read(source, arguments)
    module = model_file.build(file, seed=0)
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and not parameter.isfinite().all():
            file.refuse("model", f"model() returns {name} with numbers that are NaN or infinite")
    model_file.layers_of(file, module)
    return Described(
        digest=file.digest,
        functions=[name for name in (*model_file.REQUIRED, *model_file.OPTIONAL) if file.has(name)],
        constants={name: file.constant(name) for name in model_file.CONSTANTS},
        has_accuracy=file.has_accuracy,
        parameters={name: tuple(parameter.shape) for name, parameter in module.named_parameters()},
        has_buffers=not module.state_dict().keys() <= dict(module.named_parameters(remove_duplicate=False)).keys(),
        num_states=_num_states(file, module) if file.has("optimizer") else None,
    )


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
    def file(self) -> ModelFile:
        """The file, which this process reads."""
        return model_file.read(self.source, self.arguments)

    @property
    def described(self) -> Described:
        return described(self.source, self.arguments)

    def file_in(self, framework: str) -> ModelFile:
        return self.file

    def identity(self) -> dict[str, Any]:
        """Returns what identifies the model, wherever its file lies."""
        return {"source": self.described.digest, "arguments": model_file.arguments_of(self.arguments)}

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return apart.call(f"--model {self.source}", function, *arguments)

    def parts(self) -> list[Part]:
        """Returns one part, which no pipeline cuts."""
        layers: dict[str, dict[str, Initial]] = {}
        for name, shape in self.described.parameters.items():
            layer, _, of_layer = name.rpartition(".")
            layers.setdefault(layer, {})[of_layer] = Initial(shape, BUILT, 0.0)
        return [Part("model", tuple(Layer(name, parameters) for name, parameters in layers.items()))]

    def initial_values(self, seed: int, precision: str) -> dict[str, np.ndarray]:
        """Returns the values of the parameters with which the module is built.

        They are not those of the trainer's module, on which Horovod takes a step of the optimizer to make its state.
        """
        parameters = model_file.build(self.file, seed).named_parameters()
        return {name: parameter.detach().double().numpy().astype(DTYPES[precision]) for name, parameter in parameters}

    def training_flops(self) -> int | None:
        """Counts those of a step on the first samples by PyTorch's counter; None where it finds none."""
        module = built(self)
        counting = importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
        # The counter fails for some models that train, as for derivatives of second order.
        with contextlib.suppress(Exception), counting as counter:
            _step(self.file, module, self.first_batch(NUM_FIRST))
            return round(counter.get_total_flops() / NUM_FIRST) or None
        return None

    @property
    def collates(self) -> bool:
        return "collate" in self.described.functions

    @property
    def has_buffers(self) -> bool:
        return self.described.has_buffers

    @property
    def unused_parameters(self) -> dict[str, bool]:
        return dict.fromkeys(self.described.parameters, True) if self.described.constants["FIND_UNUSED"] else _unused_parameters(self)

    @property
    def takes_derivatives(self) -> bool:
        return _takes_derivatives(self)

    def samples(self, inputs: Any, targets: Any, sample_weights: np.ndarray, precision: str) -> Samples:
        inputs, targets = user_data.in_precision((inputs, targets), precision)
        return Samples(inputs, targets, sample_weights.astype(DTYPES[precision]))

    def first_samples(self, num_samples: int, precision: str) -> Samples:
        return self.samples(*self.first_batch(num_samples), np.full(num_samples, 1 / num_samples), precision)

    def first_batch(self, num_samples: int, start: int = 0) -> tuple[Any, Any]:
        """Returns a batch of the first samples, each as often as it takes."""
        samples = _first_of_data(self)
        return user_data.batch_of(self.file, [samples[index % len(samples)] for index in range(start, start + num_samples)], 0)

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

    @property
    def optimizer_states(self) -> float | None:
        return self.described.num_states

    def scheduled_rates(self, learning_rate: float, optimizer: str, num_steps: int) -> list[float] | None:
        """Returns the rates of scheduler() for an optimizer that begins with this one.

        Raises UserError where the scheduler changes something else, which the trainers would not follow.
        """
        file, torch = self.file, model_file.torch()
        if not file.has("scheduler"):
            return None
        shapes = self.described.parameters.items()
        parameters = {name: torch.nn.Parameter(torch.empty(shape, device="meta")) for name, shape in shapes}
        if file.has("optimizer"):
            stepped = model_file.optimizer_of(file, parameters.items())
        else:
            stepped = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](parameters.values())
        for group in stepped.param_groups:
            group["lr"] = learning_rate
        before = _options(stepped)
        scheduler = file.call("scheduler", stepped, num_steps)
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            file.refuse(
                "scheduler", "scheduler() returns ReduceLROnPlateau, whose rates follow from evaluations; use one that counts steps"
            )
        if not hasattr(scheduler, "step"):
            file.refuse("scheduler", f"scheduler() returns {type(scheduler).__name__}; it must return one of torch.optim.lr_scheduler")
        rates = []
        for step in range(num_steps):
            if step:
                # PyTorch warns of a scheduler that steps before its optimizer.
                stepped.step()
                file.attempt("scheduler", scheduler.step)
            of_groups = {float(group["lr"]) for group in stepped.param_groups}
            rates += of_groups
            if len(of_groups) != 1 or _options(stepped) != before:
                file.refuse("scheduler", "scheduler() may change the learning rate alone, for all parameters alike (cycle_momentum=False)")
        return rates


def workload(source: str, arguments: str | None) -> Workload:
    """Returns the workload of a file. Raises UserError for a mistake in it."""
    file = described(source, arguments)
    constants: dict[str, Any] = file.constants
    rate, batch_size = constants["LEARNING_RATE"], constants["BATCH_SIZE"]
    return Workload(
        model=UserModel(source, arguments),
        datasets=(DATASET,),
        batch_size=batch_size,
        evaluation_batch_size=batch_size,
        epochs=constants["EPOCHS"],
        target=constants["TARGET"],
        optimizer="sgd",
        learning_rates={optimizer: rate or default for optimizer, default in LEARNING_RATES.items()},
        metric="accuracy" if file.has_accuracy else "metric",
        lower_is_better=constants["LOWER_IS_BETTER"],
        clip_norm=constants["CLIP_NORM"],
        decided={name: function for name, function in DECIDING.items() if function in file.functions},
        name=Path(source).stem,
    )


def _options(optimizer: Any) -> list[dict[str, Any]]:
    """Returns the options of the groups of parameters without the learning rate."""
    names = optimizer.defaults.keys() - {"lr"}
    return [{name: group[name] for name in names} for group in optimizer.param_groups]


def _num_states(file: ModelFile, module: Any) -> float:
    """Returns how many numbers optimizer() keeps for each parameter, after a step without a gradient."""
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    for parameter in trained.values():
        parameter.grad = model_file.torch().zeros_like(parameter)
    optimizer = model_file.optimizer_of(file, module.named_parameters())
    file.attempt("optimizer", optimizer.step)
    unknown = {key for state in optimizer.state.values() for key in state} - OPTIMIZER_STATE.keys()
    if unknown:
        message = f"optimizer() returns {type(optimizer).__name__}, whose {', '.join(sorted(unknown))} cannot be begun anew; use another"
        file.refuse("optimizer", message)
    in_groups = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if missing := [name for name, parameter in trained.items() if id(parameter) not in in_groups]:
        names = shortened(", ".join(missing), 100)
        remedy = "list(parameters) can be read twice; a parameter that is not trained has requires_grad False"
        file.refuse("optimizer", f"optimizer() has no group with {names}, which would not be trained; {remedy}")
    sizes = [value.numel() for state in optimizer.state.values() for value in state.values() if hasattr(value, "dim") and value.dim()]
    return sum(sizes) / sum(parameter.numel() for parameter in trained.values())


@functools.cache
def _first_of_data(model: UserModel) -> list[Any]:
    """Returns the first samples of the training data."""
    train, _ = user_data.data_of(model.file)
    return user_data.seeded_samples(model.file, train, range(min(len(train), NUM_FIRST)), 0)


def built(model: UserModel) -> Any:
    """Builds the module in float32, as batches are, whatever the type of its parameters in the file."""
    return model_file.build(model.file, seed=0).float()


def _step(file: ModelFile, module: Any, batch: tuple[Any, Any]) -> None:
    inputs, targets = user_data.in_precision(batch, "fp32")
    file.call("loss", file.attempt("model", module, inputs), targets).mean().backward()


@functools.cache
def _unused_parameters(model: UserModel) -> dict[str, bool]:
    return model.call(find_unused_parameters, model)


def find_unused_parameters(model: UserModel) -> dict[str, bool]:
    """Looks at steps on the first samples, together and in pairs, of which a router may send none to an expert."""
    module, used, unused = built(model), set[str](), set[str]()
    for size, start in ((NUM_FIRST, 0), *((2, start) for start in range(0, NUM_FIRST, 2))):
        module.zero_grad()
        # A model may need larger batches.
        with contextlib.suppress(UserError), model_file.seeded(0):
            _step(model.file, module, model.first_batch(size, start))
            for name, parameter in module.named_parameters():
                (unused if parameter.grad is None else used).update([name] if parameter.requires_grad else [])
    # Where samples decide what is used, later ones may use what these do not.
    return dict.fromkeys(sorted(unused), bool(unused & used))


@functools.cache
def _takes_derivatives(model: UserModel) -> bool:
    file, module = model.file, built(model).eval()
    inputs, targets = user_data.in_precision(model.first_batch(NUM_FIRST), "fp32")
    try:
        with model_file.torch().no_grad(), model_file.generators_kept():
            file.call("loss", file.attempt("model", module, inputs), targets)
    except UserError:
        return True
    return False


def outputs_and_targets(model: UserModel, module: Any, num_samples: int = NUM_FIRST, start: int = 0) -> tuple[Any, Any]:
    """Returns what is evaluated of the first samples."""
    inputs, targets = user_data.in_precision(model.first_batch(num_samples, start), "fp32")
    with model_file.torch().set_grad_enabled(model.takes_derivatives):
        return model.file.attempt("model", module, inputs), targets


# The metric of a file whose number is no mean over samples: sums by metric(), of which finish() makes the number. The sums are a tensor, or
# nested tuples, lists and dictionaries of tensors and numbers. They are added up over batches and ranks.


@functools.cache
def first_sums(model: UserModel) -> Any:
    """Returns what metric() returns for the first samples: the sums of every batch are nested alike."""
    return model.file.call("metric", *outputs_and_targets(model, built(model).eval()))


def num_sums(model: UserModel) -> int:
    """Returns the number of sums of a file with finish()."""
    return flat_sums(first_sums(model)).numel()


def flat_sums(sums: Any, device: Any = "cpu") -> Any:
    """Returns the sums as one tensor of one dimension in float64, in which they are added up."""
    torch = model_file.torch()
    leaves, _ = _pytree().tree_flatten(sums)
    return torch.cat([torch.as_tensor(leaf, dtype=torch.float64, device=device).detach().flatten() for leaf in leaves])


def finished(model: UserModel, sums: Sequence[float], num_samples: int) -> float:
    """Returns the number that finish() makes of the sums. Raises UserError where it makes none."""
    torch = model_file.torch()
    leaves, structure = _pytree().tree_flatten(first_sums(model))
    shapes = [torch.as_tensor(leaf).shape for leaf in leaves]
    parts = torch.tensor(sums, dtype=torch.float64).split([shape.numel() for shape in shapes])
    nested = _pytree().tree_unflatten([leaf.reshape(shape) for leaf, shape in zip(parts, shapes, strict=True)], structure)
    value = model.file.call("finish", nested, num_samples)
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        model.file.refuse("finish", f"finish() returns {shortened(repr(value))}; it must return a number")


def _pytree() -> Any:
    return importlib.import_module("torch.utils._pytree")
