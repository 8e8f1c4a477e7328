"""The operations that the layers of a model consist of, with their shapes, so that a framework can compute each of them alone.

Shapes are those of one sample, and images are channels last.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

Shape = tuple[int, ...]


class Operand(NamedTuple):
    """A tensor that an operation takes.

    `parameter` is the name that it has within its layer if it is a parameter. Of every other operand each sample has one. `end` is that of
    the integers from 0 if they are integers. `low` says that mixed precision has it in bfloat16, as the result of a product. The backward
    pass computes the gradient of an operand if `has_gradient`.
    """

    shape: Shape
    parameter: str | None = None
    end: int | None = None
    low: bool = False
    has_gradient: bool = True


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation without products, whose FLOPs are not counted. The `kind` is the row of a table that it belongs to."""

    kind: str

    @property
    def flops(self) -> int:
        """The floating-point operations of the forward pass for one sample."""
        return 0

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The operands, parameters last."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Convolution(Operation):
    """A convolution with square windows. `takes_batch` says that its input is the batch, which needs no gradient."""

    kind: str = "convolution"
    input_shape: tuple[int, int, int]
    num_outputs: int
    size: int
    stride: int = 1
    padding: int = 0
    has_bias: bool = False
    takes_batch: bool = False

    @property
    def num_windows(self) -> int:
        height, width, _ = self.input_shape
        return math.prod((length + 2 * self.padding - self.size) // self.stride + 1 for length in (height, width))

    @property
    def flops(self) -> int:
        return 2 * self.num_windows * self.num_outputs * self.input_shape[-1] * self.size**2

    @property
    def operands(self) -> tuple[Operand, ...]:
        weight = self.num_outputs, self.input_shape[-1], self.size, self.size
        return Operand(self.input_shape, low=not self.takes_batch, has_gradient=not self.takes_batch), *_affine(weight, self.has_bias)


@dataclass(frozen=True, kw_only=True)
class Dense(Operation):
    """A matrix that multiplies vectors, which are the last axis of the input."""

    kind: str = "dense"
    input_shape: Shape
    num_outputs: int
    has_bias: bool = False

    @property
    def flops(self) -> int:
        return 2 * math.prod(self.input_shape) * self.num_outputs

    @property
    def operands(self) -> tuple[Operand, ...]:
        return Operand(self.input_shape), *_affine((self.num_outputs, self.input_shape[-1]), self.has_bias)


@dataclass(frozen=True, kw_only=True)
class Attention(Operation):
    """Attention of all heads, from queries to keys and values. A `causal` one rotates queries and keys, and has a mask."""

    kind: str = "attention"
    num_queries: int
    num_keys: int
    width: int
    num_heads: int
    causal: bool

    @property
    def head_width(self) -> int:
        return self.width // self.num_heads

    @property
    def flops(self) -> int:
        return attention_flops(self.num_queries, self.num_keys, self.width)

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(Operand((num_positions, self.width), low=True) for num_positions in (self.num_queries, self.num_keys, self.num_keys))


@dataclass(frozen=True, kw_only=True)
class Norm(Operation):
    """RMSNorm, layer norm or batch norm of the last axis."""

    kind: str = "norm"
    name: Literal["rms", "layer", "batch"]
    input_shape: Shape
    epsilon: float

    @property
    def operands(self) -> tuple[Operand, ...]:
        return Operand(self.input_shape, low=self.name == "batch"), *_affine(self.input_shape[-1:], self.name != "rms")


@dataclass(frozen=True, kw_only=True)
class Embedding(Operation):
    """The vectors of tokens, from a table."""

    kind: str = "embedding"
    num_positions: int
    num_tokens: int
    width: int

    @property
    def operands(self) -> tuple[Operand, ...]:
        tokens = Operand((self.num_positions,), end=self.num_tokens, has_gradient=False)
        return tokens, Operand((self.num_tokens, self.width), "embedding.weight")


@dataclass(frozen=True, kw_only=True)
class Activation(Operation):
    """An activation function. `swiglu` is SiLU of a first input, times a second."""

    kind: str = "activation"
    name: Literal["relu", "swiglu"]
    input_shape: Shape

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (Operand(self.input_shape, low=True),) * (2 if self.name == "swiglu" else 1)


@dataclass(frozen=True, kw_only=True)
class Residual(Operation):
    """The sum of a residual connection."""

    kind: str = "residual"
    input_shape: Shape
    low: bool = False

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (Operand(self.input_shape, low=self.low),) * 2


@dataclass(frozen=True, kw_only=True)
class Pooling(Operation):
    """The largest number of each window, or the mean of each image if it has no `size`."""

    kind: str = "pooling"
    input_shape: tuple[int, int, int]
    size: int | None = None
    stride: int = 1
    padding: int = 0

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (Operand(self.input_shape, low=True),)


@dataclass(frozen=True, kw_only=True)
class Loss(Operation):
    """The weighted sum of cross entropies. Targets are classes, or probabilities in the shape of the logits."""

    kind: str = "loss"
    logits_shape: Shape
    whole_targets: bool

    @property
    def operands(self) -> tuple[Operand, ...]:
        *shape, num_classes = self.logits_shape
        targets = Operand(tuple(shape), end=num_classes) if self.whole_targets else Operand(self.logits_shape)
        return Operand(self.logits_shape), targets._replace(has_gradient=False), Operand(tuple(shape), has_gradient=False)


# The optimizer updates all parameters at once, and is no operation of a layer.
OPTIMIZER = "optimizer"


def attention_flops(num_queries: int, num_keys: int, width: int) -> int:
    """Returns the operations of the scores, and of the sum of the values, over all heads.

    All are counted, although a causal mask needs half of them, as in Chowdhery et al. 2022, arXiv:2204.02311, appendix B, and in PyTorch's
    FlopCounterMode.
    """
    return 2 * 2 * num_queries * num_keys * width


def _affine(weight: Shape, has_bias: bool) -> tuple[Operand, ...]:
    return (Operand(weight, "weight"), *([Operand(weight[:1], "bias")] if has_bias else []))
