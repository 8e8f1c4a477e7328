"""What a workload trains, described: a built-in model states its parts, and a user's file is read; both are a Model.

The names and layouts of parameters are those of common/model/weights.py. Nothing here computes: frameworks/shared/networks/
has a file for each module of this room with a model, in PyTorch and in TensorFlow.
"""

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar, final

import numpy as np

from common.metric import Metric
from common.model import model_file, weights
from common.model.model_file import ModelFile
from common.model.weights import DTYPES, Initial, constant

Result = TypeVar("Result")


class Layer(NamedTuple):
    """A layer, or a computation without parameters.

    `parameters` have names within the layer. `flops` are the floating-point operations of the matrix products and convolutions of the
    forward pass for one sample. `divided` says how tensor parallelism divides the matrix over ranks: by `columns`, by `rows`, or by tokens
    as `embedding` or `head`. If it is None, every rank has the whole matrix. A lookup table is always an `embedding`, whose layout in
    TensorFlow is that of weights.py. `image` is the (height, width) of the images that a dense layer takes flattened.
    """

    name: str
    parameters: Mapping[str, Initial] = {}
    flops: int = 0
    divided: str | None = None
    image: tuple[int, int] | None = None


class Part(NamedTuple):
    """A part of a model.

    `output_shape` is the shape of the result for one sample if the next part needs nothing else, so that a pipeline may be cut there, and
    None otherwise.
    """

    name: str
    layers: tuple[Layer, ...]
    output_shape: tuple[int, ...] | None = None

    @property
    def flops(self) -> int:
        return sum(layer.flops for layer in self.layers)

    @property
    def passed_shape(self) -> tuple[int, ...]:
        """The shape of the result for one sample of a part after which a pipeline may be cut."""
        assert self.output_shape is not None, f"no pipeline is cut after {self.name}"
        return self.output_shape

    @property
    def num_parameters(self) -> int:
        return sum(math.prod(initial.shape) for layer in self.layers for initial in layer.parameters.values())


class Samples(NamedTuple):
    """Samples along the first axis of their inputs and targets, and the weight of each loss. A user's file may have nested tensors."""

    inputs: Any
    targets: Any
    weights: np.ndarray


class Model(ABC):
    """What a workload trains. Its dataclass fields are the sizes, or what names a file."""

    frameworks: ClassVar[tuple[str, ...]]
    """The frameworks that compute it."""
    pads: ClassVar[bool]
    """Whether a batch with fewer samples is filled up with samples of weight 0, so that all batches have one shape."""
    collates: bool = False
    """Whether a file collates samples itself, into batches that cannot be cut along an axis."""
    tokens_per_sample: int | None = None
    """The number of tokens that are predicted; None for a model without tokens."""
    has_buffers: bool = False
    """Whether it has state beside its parameters, such as running statistics."""
    takes_derivatives: bool = False
    """Whether the model or its loss takes derivatives itself, also in evaluation."""
    unused_parameters: Mapping[str, bool] = MappingProxyType({})
    """The parameters that a step may leave without a gradient by name, each with whether another step may give it one."""
    optimizer_states: float | None = None
    """How many numbers its own optimizer keeps for each parameter; None without one."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Returns what the digest of a workload has of the model."""

    @abstractmethod
    def file_in(self, framework: str) -> ModelFile:
        """Returns the file that computes it in `pytorch` or `tensorflow`."""

    @abstractmethod
    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Calls a function of a module that runs the model's code: in a process of its own where that is a user's."""

    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """Returns the parts in the order of the forward pass."""

    @abstractmethod
    def initial_values(self, seed: int, precision: str) -> dict[str, np.ndarray]:
        """Returns the initial values of the parameters by name."""

    @abstractmethod
    def training_flops(self) -> int | None:
        """Returns the operations of matrix products and convolutions to train on one sample; None where they are not known."""

    @abstractmethod
    def samples(self, inputs: Any, targets: Any, sample_weights: np.ndarray, precision: str) -> Samples:
        """Returns the samples of a batch in the types in which they are trained."""

    @abstractmethod
    def first_samples(self, num_samples: int, precision: str) -> Samples:
        """Returns samples with the shapes and types of real ones, for a warm-up."""

    @abstractmethod
    def metric(self, num_correct: float, num_losses: float, sums: Sequence[float], is_finite: bool) -> float:
        """Returns the accuracy, or what stands in its place, of the sums over the held-out samples; `is_finite`: whether the loss is."""

    @abstractmethod
    def scheduled_rates(self, learning_rate: float, optimizer: str, num_steps: int) -> list[float] | None:
        """Returns the learning rate of each step by the model's own schedule; None without one."""


@functools.cache
def parts_of(model: Model) -> tuple[Part, ...]:
    """Returns the parts of a model in the order of the forward pass."""
    return tuple(model.parts())


def layers_of(model: Model) -> list[Layer]:
    """Returns the layers of a model in the order of the forward pass."""
    return [layer for part in parts_of(model) for layer in part.layers]


def parameters_of(model: Model) -> dict[str, Initial]:
    """Returns all parameters of a model by name."""
    return {f"{layer.name}.{name}".removeprefix("."): initial for layer in layers_of(model) for name, initial in layer.parameters.items()}


class Workload(NamedTuple):
    """A model and the default settings to train it.

    The first of `datasets` is the default. A workload with `target` None is for throughput only: it has no accuracy and no time
    to solution. `metric` is the name of what is compared with the target. `clip_norm`: the largest norm of the whole gradient.
    `decided` has the functions of a file that decide a setting, by its name, and `name` is the file's, or that in the table of workloads.
    """

    model: Model
    datasets: tuple[str, ...]
    batch_size: int
    evaluation_batch_size: int
    epochs: int
    target: float | None
    optimizer: str
    learning_rates: dict[str, float]
    metric: Metric = "accuracy"
    lower_is_better: bool = False
    clip_norm: float | None = None
    decided: Mapping[str, str] = MappingProxyType({})
    name: str = ""

    @property
    def parameters(self) -> dict[str, Initial]:
        return parameters_of(self.model)

    @property
    def num_parameters(self) -> int:
        return sum(part.num_parameters for part in parts_of(self.model))

    def defaults(self, optimizer: str | None = None) -> dict[str, str | int | float | None]:
        """Returns the defaults of the settings whose default is the workload's, by name.

        The learning rate is that of `optimizer`, or of the workload's optimizer.
        """
        return {
            "dataset": self.datasets[0],
            "batch_size": self.batch_size,
            "epochs": self.epochs,
            "target": self.target,
            "optimizer": self.optimizer,
            "learning_rate": self.learning_rates[optimizer or self.optimizer],
        }

    def describe_default(self, name: str) -> str:
        """Returns the default of a setting in words. The learning rate has one for each optimizer."""
        if name == "learning_rate":
            return ", ".join(f"{rate} for {optimizer}" for optimizer, rate in self.learning_rates.items())
        return str(self.defaults()[name])


class BuiltIn(Model):
    """A model of common/model/: a frozen dataclass of its sizes, which are part of the digest of a workload."""

    frameworks = ("PyTorch", "TensorFlow", "Keras")
    pads = True
    pixels: ClassVar[bool] = False
    """Whether the inputs are integers from 0 to 255, which are moved to the device as bytes."""
    whole_inputs: bool
    """Whether inputs are integers rather than numbers in the precision of a run."""

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """The shape of the inputs of a sample."""

    @property
    @abstractmethod
    def target_shape(self) -> tuple[int, ...]:
        """The shape of the targets of a sample."""

    @final
    def identity(self) -> dict[str, Any]:
        # Targets are whole numbers, which earlier digests have as a field.
        return dataclasses.asdict(self) | {"whole_targets": True}  # pyright: ignore[reportArgumentType]

    @final
    def file_in(self, framework: str) -> ModelFile:
        name = type(self).__module__.rpartition(".")[2]
        return model_file.of_module(f"frameworks.shared.networks.{name}_{framework}", description=self)

    @final
    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return function(*arguments)

    @final
    def initial_values(self, seed: int, precision: str) -> dict[str, np.ndarray]:
        return weights.draw(parameters_of(self), seed, precision)

    @final
    def training_flops(self) -> int:
        """Returns three times those of the forward pass.

        The backward pass has two products for each of the forward pass (Chowdhery et al. 2022, arXiv:2204.02311, appendix B).
        """
        return 3 * sum(part.flops for part in parts_of(self))

    @final
    def samples(self, inputs: np.ndarray, targets: np.ndarray, sample_weights: np.ndarray, precision: str) -> Samples:
        # Every loss of a sample has the sample's weight.
        loss_weights = np.ones(targets.shape) * sample_weights.reshape(-1, *[1] * (targets.ndim - 1))
        inputs = inputs.astype(self._input_type(precision), copy=False)
        return Samples(inputs, targets.astype(np.int64), loss_weights.astype(DTYPES[precision]))

    @final
    def first_samples(self, num_samples: int, precision: str) -> Samples:
        inputs = np.zeros((num_samples, *self.input_shape), self._input_type(precision))
        targets = np.zeros((num_samples, *self.target_shape), np.int64)
        return Samples(inputs, targets, np.full(targets.shape, 1 / targets.size, DTYPES[precision]))

    @final
    def metric(self, num_correct: float, num_losses: float, sums: Sequence[float], is_finite: bool) -> float:
        return num_correct / num_losses

    @final
    def scheduled_rates(self, learning_rate: float, optimizer: str, num_steps: int) -> None:
        return None

    def _input_type(self, precision: str) -> type[np.number]:
        """Returns NumPy's type of the inputs in a batch.

        Integers are int64, which all frameworks accept, but pixels are bytes: the model scales them on its device, and less is moved there.
        """
        if self.pixels:
            return np.uint8
        return np.int64 if self.whole_inputs else DTYPES[precision]


def product(
    name: str,
    weight: Initial,
    num_products: int = 1,
    has_bias: bool = False,
    divided: str | None = None,
    image: tuple[int, int] | None = None,
) -> Layer:
    """Returns a dense layer, or a convolution, whose weight multiplies `num_products` vectors, or windows, of a sample.

    A multiplication with its addition counts as two operations.
    """
    parameters = {"weight": weight} | ({"bias": constant(weight.shape[:1])} if has_bias else {})
    return Layer(name, parameters, 2 * num_products * math.prod(weight.shape), divided, image)


def norm(name: str, size: int, has_bias: bool = True, scale: float = 1.0) -> Layer:
    """Returns a norm of vectors, or channels, of this size. Its weight starts at `scale`."""
    return Layer(name, {"weight": constant((size,), scale)} | ({"bias": constant((size,))} if has_bias else {}))


def attention_flops(context: int, width: int) -> int:
    """Returns the operations of the scores, and of the sum of the values, over all heads.

    All are counted, although a causal mask needs half of them, as in Chowdhery et al. 2022, arXiv:2204.02311, appendix B, and in PyTorch's
    FlopCounterMode.
    """
    return 2 * 2 * context**2 * width
