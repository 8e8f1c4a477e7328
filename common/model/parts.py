"""What describes a model: its parts, and their layers. Parameters, FLOPs, activations and stages follow from it.

A model family is a NamedTuple of its sizes, which are part of the digest of a workload, with

- `input_shape` and `target_shape`: the shapes of a sample;
- `whole_inputs` and `whole_targets`: whether they are integers rather than numbers in the precision of a run;
- `pixels`: whether the inputs are integers from 0 to 255, which are moved to the device as bytes;
- `tokens_per_sample`: the number of tokens that are predicted, None for a model of images;
- `parts(sizes, num_divisions)`: its Parts in the order of the forward pass. Their activations are in bytes of these Sizes, and those of a
  rank where tensor parallelism divides them over `num_divisions` ranks.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from common.model.weights import Initial, constant

INDEX_BYTES = 8


class Sizes(NamedTuple):
    """Bytes of a number: of a parameter, and of what is added up over layers; of a factor of a matrix product; of a statistic or a loss.

    `fused`: RMSNorm is one operation and attention returns its result as the next product takes it, as on GPUs.
    """

    element: int
    factor: int
    statistic: int
    fused: bool

    @property
    def mixed(self):
        return self.factor != self.element


FLOAT32 = Sizes(4, 4, 4, fused=False)


class Layer(NamedTuple):
    """A layer, or an operation without parameters.

    `parameters`: {name within the layer: Initial}. `flops`: floating-point operations of the forward pass for one sample; None: not stated.
    `num_multiplied`: elements of the matrices that products take, of which mixed precision makes copies in 16 bits. `divided`: how tensor
    parallelism divides the matrix over ranks, as `columns`, `rows`, or by tokens as an `embedding` or a `head`; None: it does not.
    """

    name: str
    parameters: Mapping[str, Initial] = {}
    flops: int | None = None
    num_multiplied: int = 0
    divided: str | None = None


class Part(NamedTuple):
    """A part of a model, whose activations the backward pass frees before it comes to the part before it.

    `output_shape`: the shape of its result for one sample where that is all that the next part needs, so that a pipeline may be cut there;
    None where it is not.
    Bytes for each sample of a batch: `kept`, of the tensors that autograd keeps, None where they are not stated; `working`, of what the
    backward pass has beside; `inputs`, of those of `kept` that stay where the part is recomputed, None where it cannot be. `block` names
    the parts that are recomputed, or gathered by FSDP, at once; "" for the rest.
    """

    name: str
    layers: tuple[Layer, ...]
    output_shape: tuple[int, ...] | None = None
    kept: float | None = None
    working: float = 0
    inputs: float | None = None
    block: str = ""

    @property
    def flops(self):
        """Floating-point operations of the forward pass for one sample."""
        return sum(layer.flops for layer in self.layers)

    @property
    def num_parameters(self):
        return sum(math.prod(initial.shape) for layer in self.layers for initial in layer.parameters.values())

    @property
    def num_multiplied(self):
        return sum(layer.num_multiplied for layer in self.layers)


def product(name, weight, num_positions, bias=False, divided=None):
    """The Layer of a matrix that multiplies the vectors at so many positions of a sample, or of a convolution with so many windows.

    A multiplication with its addition counts as two operations.
    """
    num_multiplied = math.prod(weight.shape)
    parameters = {"weight": weight} | ({"bias": constant(weight.shape[:1])} if bias else {})
    return Layer(name, parameters, 2 * num_positions * num_multiplied, num_multiplied, divided)


def norm(name, width, bias=False, scale=1.0):
    """The Layer of a norm, of which no operations are counted."""
    return Layer(name, {"weight": constant((width,), scale)} | ({"bias": constant((width,))} if bias else {}), flops=0)


def attention_flops(num_queries, num_keys, width):
    """Operations of the scores, and of the sum of the values, over all heads.

    They count whole, although a causal mask needs half of them, as in Chowdhery et al. 2022, arXiv:2204.02311, appendix B, and in PyTorch's
    FlopCounterMode.
    """
    return 2 * 2 * num_queries * num_keys * width
