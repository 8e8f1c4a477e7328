"""The parameters and gradients that backends hold in order to exchange them, beside the tensors that are trained.

A backend's declaration names its way (`buffers` in common/backends.py). A unit is what FSDP gathers at once: a block, or the part of the
model outside the blocks.
"""

from collections.abc import Callable
from typing import NamedTuple

MIB = 2**20
# Of Horovod's fusion buffer: 0.28.1, HOROVOD_FUSION_THRESHOLD.
FUSION_BYTES = 128 * MIB
# Numbers in DeepSpeed 0.19.8: reduce_bucket_size, stage3_prefetch_bucket_size and stage3_max_live_parameters.
REDUCE_BUCKET, MAX_LIVE = 500_000_000, 1_000_000_000


class Units(NamedTuple):
    """Numbers of parameters: `blocks`, of each block in forward order; `outside`, of the model beside them; `largest`, of a tensor.

    `element` is the bytes of a parameter. `variant` and `offload` are those in the name of the backend.
    """

    blocks: tuple[float, ...]
    outside: float
    largest: float
    element: int
    variant: str = ""
    offload: str = ""

    @property
    def whole(self) -> float:
        return sum(self.blocks) + self.outside


class BufferBytes(NamedTuple):
    """Bytes of a rank's buffers: `always`; `after_forward`, while the forward pass ends; `in_backward`, by unit in forward order.

    The last unit is the part of the model outside the blocks.
    """

    always: float = 0
    after_forward: float = 0
    in_backward: tuple[float, ...] = ()


def buckets(units: Units) -> BufferBytes:
    """DistributedDataParallel has the gradients once more, unless they are views of its buckets (gradient_as_bucket_view).

    Li et al. 2020, arXiv:2006.15704, section 4.2.
    """
    return BufferBytes(units.whole * units.element)


def packed(units: Units) -> BufferBytes:
    """After the backward pass a backend has all gradients in one vector, and that vector over the number of ranks."""
    return BufferBytes(0, 0, (0,) * len(units.blocks) + (2 * units.whole * units.element,))


def gathered(units: Units) -> BufferBytes:
    """FSDP2 has whole parameters, of the current block, the next one and the part outside; and gradients that are being scattered.

    With `keep` it has all parameters from the forward pass on, and beside them the last block's in the buffer of its gather.
    """
    element, blocks, keeps = units.element, units.blocks, units.variant == "keep"
    last = blocks[-1] if blocks else units.outside
    after_forward = (units.whole if keeps else units.outside + last) + last
    in_backward = []
    for index, block in enumerate(blocks):
        before, after = (blocks[neighbour] if 0 <= neighbour < len(blocks) else 0 for neighbour in (index - 1, index + 1))
        whole = units.outside + sum(blocks[: index + 1]) if keeps else units.outside + block + before
        in_backward.append((whole + after) * element)
    return BufferBytes(0, after_forward * element, (*in_backward, (units.outside + (sum(blocks) if keeps else last)) * element))


def zero(units: Units) -> BufferBytes:
    """DeepSpeed has a bucket of whole gradients and its flattened copy. In stage 3 it also keeps many parameters for their next use.

    In stage 0 the gradients are those that are trained. With offload stages 1 and 2 have one bucket that is allocated in full, as with
    `contiguous_gradients` (DeepSpeed 0.19.8, stage_1_and_2.py).
    """
    stage = units.variant.partition("+")[0] or "1"
    # A tensor is gathered and reduced as a whole.
    bucket, live = max(REDUCE_BUCKET, units.largest), max(MAX_LIVE, units.largest)
    num_gradients = bucket if units.offload and stage != "3" else min(units.whole, bucket) * (1 if stage == "0" else 2)
    kept = min(units.whole, live) if stage == "3" else 0
    return BufferBytes(kept * units.element, 0, (num_gradients * units.element,) * (len(units.blocks) + 1))


BUFFERS: dict[str | None, Callable[[Units], BufferBytes]] = {
    None: lambda units: BufferBytes(),
    "fusion": lambda units: BufferBytes(FUSION_BYTES),
    "buckets": buckets,
    "packed": packed,
    "gathered": gathered,
    "zero": zero,
}
