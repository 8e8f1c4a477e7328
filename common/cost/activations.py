"""What PyTorch keeps of a forward pass for the backward pass, by formula. Pure.

Counted is each tensor that autograd keeps, once, but neither parameters nor the batch itself, after Korthikanti et al. 2022,
arXiv:2205.05198, section 4.1, whose layer has LayerNorm, GELU and a matrix of scores. The decoder here has RMSNorm, SwiGLU and rotary
embeddings, and scaled_dot_product_attention, which keeps one number per head and position in place of that matrix. Mixed precision keeps
copies in 16 bits of what matrix products multiply, weights too.
"""

import itertools
from typing import NamedTuple

from common.cost.sharing import PRECISIONS
from common.model.families import parts_of
from common.model.parts import Sizes


class Activations(NamedTuple):
    """What a Part of a model keeps, in bytes.

    `kept`, `working` and `inputs`, for each sample of a batch, and `block` as in common/model/parts.py. `copies`: of weights in 16 bits.
    `recomputed`: those that the backward pass computes again.
    """

    name: str
    num_parameters: int
    kept: float
    working: float
    copies: float
    inputs: float | None
    block: str
    recomputed: float = 0


def sizes_of(precision, device):
    """The Sizes in a precision of common/cost/sharing.py on `cpu` or `cuda`."""
    numbers = PRECISIONS[precision]
    return Sizes(numbers.parameters, numbers.products, max(4, numbers.parameters), device == "cuda")


def by_part(model, sizes, num_divisions=1):
    """The Activations of the parts of a model in the order of the forward pass."""
    return [
        Activations(
            part.name, part.num_parameters, part.kept, part.working, sizes.factor * part.num_multiplied if sizes.mixed else 0,
            part.inputs, part.block,
        )
        for part in parts_of(model, sizes, num_divisions)
    ]  # fmt: skip


def recomputed(parts, whole_blocks=True):
    """The Activations with --recompute: a block keeps its input, and its backward pass computes the rest again.

    Without `whole_blocks` each half of a block does so by itself, as in a pipeline.
    """
    groups = itertools.groupby(parts, lambda part: (part.inputs is not None and whole_blocks and part.block) or part.name)
    return [_recomputed_block(name, list(of_block)) for name, of_block in groups]


def _recomputed_block(name, parts):
    """The Activations of the parts of a block, which are computed again; those of a part that cannot be, as they are."""
    first, last = parts[0], parts[-1]
    if first.inputs is None:
        return first
    kept, copies, num_parameters = (sum(getattr(part, field) for part in parts) for field in ("kept", "copies", "num_parameters"))
    return last._replace(name=name, num_parameters=num_parameters, kept=first.inputs, copies=copies, recomputed=kept - first.inputs)
