"""The description of a model: its parts, and their layers. Parameters, FLOPs, activations and stages follow from it.

A model family is a NamedTuple of its sizes, which are part of the digest of a workload, with

- `input_shape` and `target_shape`: the shapes of a sample;
- `whole_inputs` and `whole_targets`: whether they are integers rather than numbers in the precision of a run;
- `pixels`: whether the inputs are integers from 0 to 255, which are moved to the device as bytes;
- `tokens_per_sample`: the number of tokens that are predicted, None for a model of images;
- `logits_shape`: the shape of the results for a sample, with the classes last;
- `parts(sizes, num_divisions)`: its Parts in the order of the forward pass. Their activations are in bytes of these Sizes, and are those of
  one rank where tensor parallelism divides them over `num_divisions` ranks.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from common.model.conventions import LAYER_NORM_EPSILON, RMS_NORM_EPSILON
from common.model.operations import Convolution, Dense, Norm, Operation, Shape
from common.model.weights import Initial, constant

INDEX_BYTES = 8


class Sizes(NamedTuple):
    """The bytes of a number, by its use.

    `element` is the size of a parameter, and of the sum to which the layers add their results; `factor` that of an operand of a matrix
    product; `statistic` that of a statistic or a loss. `fused` says that RMSNorm is one operation, and that attention returns its result in
    the layout that the next product takes, as on GPUs.
    """

    element: int
    factor: int
    statistic: int
    fused: bool

    @property
    def mixed(self) -> bool:
        return self.factor != self.element


FLOAT32 = Sizes(4, 4, 4, fused=False)


class Layer(NamedTuple):
    """A layer, or an operation without parameters.

    `parameters` have names within the layer. `flops` are the floating-point operations of the forward pass for one sample, None if they are
    not stated. `num_multiplied` is the number of elements of the matrices in products, of which mixed precision makes copies in 16 bits.
    `divided` says how tensor parallelism divides the matrix over ranks: by `columns`, by `rows`, or by tokens as `embedding` or `head`.
    If it is None, every rank has the whole matrix. `operations` are what it computes, with what follows up to the next layer.
    """

    name: str
    parameters: Mapping[str, Initial] = {}
    flops: int | None = None
    num_multiplied: int = 0
    divided: str | None = None
    operations: tuple[Operation, ...] = ()

    def followed_by(self, *operations: Operation) -> "Layer":
        """Returns the layer with operations after its own."""
        return self._replace(operations=(*self.operations, *operations))


class Part(NamedTuple):
    """A part of a model. The backward pass frees its activations before it comes to the previous part.

    `output_shape` is the shape of the result for one sample if the next part needs nothing else, so that a pipeline may be cut there, and
    None otherwise. The next three are bytes for each sample of a batch: `kept`, of the tensors that autograd keeps, None if it is not
    stated; `working`, of what the backward pass allocates besides; `inputs`, of the tensors that stay when the part is recomputed, None if
    it cannot be. Parts with the same `block` are recomputed, or gathered by FSDP, together; a part with the block "" is not.
    """

    name: str
    layers: tuple[Layer, ...]
    output_shape: tuple[int, ...] | None = None
    kept: float | None = None
    working: float = 0
    inputs: float | None = None
    block: str = ""

    @property
    def flops(self) -> int:
        """The floating-point operations of the forward pass for one sample, which all layers must state."""
        total = 0
        for layer in self.layers:
            assert layer.flops is not None, f"{layer.name} does not state its FLOPs"
            total += layer.flops
        return total

    @property
    def passed_shape(self) -> tuple[int, ...]:
        """The shape of the result for one sample of a part after which a pipeline may be cut."""
        assert self.output_shape is not None, f"no pipeline is cut after {self.name}"
        return self.output_shape

    @property
    def num_parameters(self) -> int:
        return sum(math.prod(initial.shape) for layer in self.layers for initial in layer.parameters.values())

    @property
    def num_multiplied(self) -> int:
        return sum(layer.num_multiplied for layer in self.layers)


def product(name: str, weight: Initial, operation: Convolution | Dense, divided: str | None = None) -> Layer:
    """Returns a convolution or a dense layer with this weight. A multiplication with its addition counts as two operations."""
    parameters = {"weight": weight} | ({"bias": constant(weight.shape[:1])} if operation.has_bias else {})
    return Layer(name, parameters, operation.flops, math.prod(weight.shape), divided, (operation,))


def rms_norm(name: str, input_shape: Shape) -> Layer:
    return norm(name, Norm(name="rms", input_shape=input_shape, epsilon=RMS_NORM_EPSILON))


def layer_norm(name: str, input_shape: Shape) -> Layer:
    return norm(name, Norm(name="layer", input_shape=input_shape, epsilon=LAYER_NORM_EPSILON))


def norm(name: str, operation: Norm, scale: float = 1.0) -> Layer:
    """Returns a norm whose weight starts at `scale`."""
    starts = {"weight": scale, "bias": 0.0}
    parameters = {operand.parameter: operand.shape for operand in operation.operands if operand.parameter}
    initials = {parameter: constant(shape, starts[parameter]) for parameter, shape in parameters.items()}
    return Layer(name, initials, operation.flops, operations=(operation,))
