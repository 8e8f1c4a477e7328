"""What backends hold of parameters and gradients in order to exchange them, beside the tensors that are trained. Pure.

A backend's declaration names its way (`buffers` in common/backends.py). All functions take the `units` of a model, and return bytes while
the forward pass ends and during the backward pass of each unit. A unit is what FSDP gathers at once: a block, or the rest of the model.
"""

from typing import NamedTuple

MIB = 2**20
# Of Horovod's fusion buffer: 0.28.1, HOROVOD_FUSION_THRESHOLD.
FUSION_BYTES = 128 * MIB
# Numbers in DeepSpeed 0.19.8: reduce_bucket_size, stage3_prefetch_bucket_size and stage3_max_live_parameters.
REDUCE_BUCKET, MAX_LIVE = 500_000_000, 1_000_000_000


class Units(NamedTuple):
    """Numbers of parameters: `blocks`, of each in forward order; `outside`, of the model beside them; `largest`, of a tensor.

    `element`: bytes of a parameter. `variant` and `offload`: of the backend, as in its name.
    """

    blocks: tuple[float, ...]
    outside: float
    largest: float
    element: int
    variant: str = ""
    offload: str = ""

    @property
    def whole(self):
        return sum(self.blocks) + self.outside


class Held(NamedTuple):
    """Bytes of a rank: `always`; `after_forward`, and `in_backward` by block, the last for the rest of the model."""

    always: float = 0
    after_forward: float = 0
    in_backward: tuple[float, ...] = ()


def buckets(units):
    """DistributedDataParallel's: the gradients once more, unless they are views of the buckets (gradient_as_bucket_view).

    Li et al. 2020, arXiv:2006.15704, section 4.2.
    """
    return Held(units.whole * units.element)


def packed(units):
    """All gradients in one vector, and that vector over the number of ranks; after the backward pass."""
    return Held(0, 0, (0,) * len(units.blocks) + (2 * units.whole * units.element,))


def gathered(units):
    """FSDP2's whole parameters: the rest of the model, the block that is computed, and the next one; gradients that are being scattered.

    With `keep` all parameters from the forward pass on, and beside them the last block's in the buffer of its gather.
    """
    element, blocks, keeps = units.element, units.blocks, units.variant == "keep"
    last = blocks[-1] if blocks else units.outside
    after_forward = (units.whole if keeps else units.outside + last) + last
    in_backward = []
    for index, block in enumerate(blocks):
        before, after = (blocks[neighbour] if 0 <= neighbour < len(blocks) else 0 for neighbour in (index - 1, index + 1))
        whole = units.outside + sum(blocks[: index + 1]) if keeps else units.outside + block + before
        in_backward.append((whole + after) * element)
    return Held(0, after_forward * element, (*in_backward, (units.outside + (sum(blocks) if keeps else last)) * element))


def zero(units):
    """DeepSpeed's bucket of whole gradients and its flattened copy; in stage 3 also parameters, many of which it keeps for their next use.

    In stage 0 the gradients are those that are trained. With offload stages 1 and 2 have one bucket that is allocated in full, as with
    `contiguous_gradients` (DeepSpeed 0.19.8, stage_1_and_2.py).
    """
    stage = units.variant or "1"
    # A tensor is gathered and reduced as a whole.
    bucket, live = max(REDUCE_BUCKET, units.largest), max(MAX_LIVE, units.largest)
    num_gradients = bucket if units.offload and stage != "3" else min(units.whole, bucket) * (1 if stage == "0" else 2)
    kept = min(units.whole, live) if stage == "3" else 0
    return Held(kept * units.element, 0, (num_gradients * units.element,) * (len(units.blocks) + 1))


BUFFERS = {
    None: lambda units: Held(), "fusion": lambda units: Held(FUSION_BYTES), "buckets": buckets, "packed": packed,
    "gathered": gathered, "zero": zero,
}  # fmt: skip
