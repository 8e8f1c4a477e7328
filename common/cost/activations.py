"""The tensors that PyTorch keeps of a forward pass for the backward pass, by formula.

Each tensor that autograd keeps counts once, but neither parameters nor the batch itself. The formulas follow Korthikanti et al. 2022,
arXiv:2205.05198, section 4.1, whose layer has LayerNorm, GELU and a matrix of scores. The decoder here has RMSNorm, SwiGLU and rotary
embeddings, and scaled_dot_product_attention, which keeps one number per head and position in place of that matrix. Mixed precision keeps
16-bit copies of the factors of matrix products, weights too.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from common.cost.sharing import PRECISIONS
from common.model import own_activations
from common.model.families import Model, parts_of
from common.model.own_model import OwnModel
from common.model.parts import Part, Sizes


class Activations(NamedTuple):
    """The bytes that a Part of a model keeps.

    `kept`, `working` and `inputs` are of each sample of a batch; these and `block` are those of common/model/parts.py. `copies` are of
    weights in 16 bits. `recomputed` are the bytes of each sample that the backward pass computes again.
    """

    name: str
    num_parameters: float
    kept: float
    working: float
    copies: float
    inputs: float | None
    block: str
    recomputed: float = 0


def sizes_of(precision: str, device: str) -> Sizes:
    """Returns the sizes of numbers in a precision of common/cost/sharing.py on `cpu` or `cuda`."""
    numbers = PRECISIONS[precision]
    return Sizes(numbers.parameters, numbers.products, max(4, numbers.parameters), device == "cuda")


def by_part(model: Model, sizes: Sizes, num_divisions: int = 1) -> list[Activations]:
    """Returns the activations of the parts of a model in the order of the forward pass. They must be known."""
    activations = []
    for part in _parts(model, sizes, num_divisions):
        assert part.kept is not None, "only models whose activations are known have a forecast"
        copies = sizes.factor * part.num_multiplied if sizes.mixed else 0
        activations.append(Activations(part.name, part.num_parameters, part.kept, part.working, copies, part.inputs, part.block))
    return activations


def are_known(model: Model, sizes: Sizes) -> bool:
    """Returns whether the activations of a model are stated, or counted for a model of the user's own."""
    return all(part.kept is not None for part in _parts(model, sizes))


def _parts(model: Model, sizes: Sizes, num_divisions: int = 1) -> list[Part]:
    parts = list(parts_of(model, sizes, num_divisions))
    if isinstance(model, OwnModel) and (tracked := own_activations.of_sample(model, sizes)):
        return [part._replace(kept=tracked.kept, working=tracked.working) for part in parts]
    return parts


def recomputed(parts: Sequence[Activations], whole_blocks: bool = True) -> list[Activations]:
    """Returns the activations with --recompute: a block keeps its input, and its backward pass computes its other tensors again.

    Without `whole_blocks` each half of a block does so by itself, as in a pipeline.
    """
    blocks = itertools.groupby(parts, lambda part: (part.inputs is not None and whole_blocks and part.block) or part.name)
    return [_recomputed_block(name, list(parts_of_block)) for name, parts_of_block in blocks]


def _recomputed_block(name: str, parts: list[Activations]) -> Activations:
    """Returns the activations of the parts of a block, which are computed again; those of a part that cannot be stay as they are."""
    first, last = parts[0], parts[-1]
    if first.inputs is None:
        return first
    kept, copies, num_parameters = (sum(getattr(part, field) for part in parts) for field in ("kept", "copies", "num_parameters"))
    return last._replace(name=name, num_parameters=num_parameters, kept=first.inputs, copies=copies, recomputed=kept - first.inputs)
