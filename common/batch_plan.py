"""How the samples of a step are divided: the one place where global, local and micro-batches follow from each other."""

from typing import NamedTuple

from common.errors import UserError


class BatchPlan(NamedTuple):
    """The numbers of samples in a step: of all shards, of one shard, and of one micro-batch of a shard; and the number of shards."""

    global_batch: int
    local_batch: int
    micro_batch: int
    degree: int


def plan_batch(batch_size: int, accumulate: int, scaling: str, degree: int) -> BatchPlan:
    """Plans the batch of a step at a data-parallel degree (common/cost/parallelism.py).

    The batch size is that of a micro-batch: of each shard under weak scaling, of all shards under strong scaling. Raises UserError where
    the shards of a micro-batch would not be equal.
    """
    of_all_shards = batch_size * degree if scaling == "weak" else batch_size
    if of_all_shards % degree:
        raise UserError(
            f"a global batch of {of_all_shards} is not divisible into {degree} equal shards; make --batch-size a multiple of {degree}"
        )
    micro_batch = of_all_shards // degree
    return BatchPlan(of_all_shards * accumulate, micro_batch * accumulate, micro_batch, degree)
