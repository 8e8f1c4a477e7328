"""What a rank holds of parameters, gradients and optimizer state as the libraries do it, by backend. Pure."""

import heapq
import math
from typing import NamedTuple

from common.backends import declaration_of
from common.cost import sharing
from common.model.families import Model, parameters_of


class Training(NamedTuple):
    """What is trained.

    `batch_size`: samples of a step on each rank, or on all ranks that compute one model together. `precision`: of common/cost/sharing.py.
    `num_parameters`: in place of the model's own number, so that each part has as many times more. `device`: cpu or cuda.
    """

    model: Model
    batch_size: int
    precision: str = "fp32"
    optimizer: str = "adam"
    momentum: float = 0.9
    recompute: bool = False
    microbatches: int = 4
    num_parameters: float | None = None
    device: str = "cuda"


def num_parameters(training):
    """The number of parameters of the model."""
    return training.num_parameters or sum(sizes_of(training.model))


def held_bytes(name, training, whole, num_ranks):
    """{part of the state: bytes of the rank that holds most} of {part: bytes of a whole model}, as the libraries do it.

    They differ from common/cost/sharing.py where DeepSpeed (0.19.8) has the gradients of a shard beside those that update the float32
    masters, and stage 1 has no others after the backward pass; and where whole parameters are dealt to ranks.
    """
    declaration = declaration_of(name)
    if declaration.divides:
        # Matrices are divided, and the vectors of norms are not.
        divided = sum(math.prod(shape) / (num_ranks if len(shape) > 1 else 1) for shape in shapes_of(training.model))
        return {part: num_bytes * divided / sum(sizes_of(training.model)) for part, num_bytes in whole.items()}
    way = sharing.of(name) or sharing.WAYS["replicated"]
    held = sharing.held_bytes(way, num_ranks, whole)
    if declaration.buffers == "gathered":
        # Whole parameters are beside the shards.
        held["parameters"] = whole["parameters"] * way.num_replicas / num_ranks
    if declaration.float32_masters and way.sharded:
        element = sharing.PRECISIONS[training.precision].parameters
        again = sharing.FLOAT32_BYTES / element if "parameters" in way.sharded or element < sharing.FLOAT32_BYTES else 0
        held["gradients"] = whole["gradients"] / num_ranks * (1 + again)
    if declaration.deals:
        held |= {part: whole[part] * largest_hand(sizes_of(training.model), num_ranks) for part in way.sharded}
    return held


def largest_hand(sizes, num_ranks):
    """The largest part of the whole that a rank has where the largest goes to the rank with least, one after the other.

    As PyTorch's ZeroRedundancyOptimizer deals parameters.
    """
    hands = [0] * num_ranks
    for size in sorted(sizes, reverse=True):
        heapq.heapreplace(hands, hands[0] + size)
    return max(hands) / sum(sizes)


def shapes_of(model):
    """The shapes of all parameters of a model."""
    return [initial.shape for initial in parameters_of(model).values()]


def sizes_of(model):
    """The numbers of elements of all parameters of a model."""
    return list(map(math.prod, shapes_of(model)))
