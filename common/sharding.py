"""Which samples each rank takes at each step. Pure: indices and weights, no data."""

import numpy as np

from common.errors import UserError

LAST_BATCH = ("drop", "pad")


def local_batch_of(global_batch, num_ranks):
    """Samples of one rank's shard. Raises UserError where the global batch cannot be cut into equal ones."""
    if global_batch % num_ranks:
        raise UserError(
            f"a global batch of {global_batch} cannot be cut into {num_ranks} equal shards; make --batch-size a multiple of {num_ranks}"
        )
    return global_batch // num_ranks


def num_steps(num_samples, global_batch, last_batch):
    """Steps of one epoch. Raises UserError where the samples do not fill a single batch that is not padded."""
    steps = num_samples // global_batch if last_batch == "drop" else -(-num_samples // global_batch)
    if steps == 0:
        raise UserError(
            f"a global batch of {global_batch} is more than the {num_samples} samples, so that --last-batch drop leaves no step; "
            "use fewer ranks, a smaller --batch-size or --last-batch pad"
        )
    return steps


def training_shard(num_samples, global_batch, last_batch, seed, epoch, rank, num_ranks, counts=1):
    """(indices, weights) of one rank in one epoch, each of shape (steps, global_batch / num_ranks).

    One permutation per (seed, epoch) is cut into global batches, and each of those into contiguous shards, one a rank:
    N ranks with batch b see at each step what one rank with batch N*b sees. What pads the last batch has weight 0.
    Weights are scaled so that the sum of weight * loss on a rank, averaged over ranks, is the mean loss of the global
    batch, however its padding is spread. `counts` says of each sample how many losses it has; the mean is over losses.
    """
    local_batch = local_batch_of(global_batch, num_ranks)
    steps = num_steps(num_samples, global_batch, last_batch)
    order = np.random.default_rng([seed, epoch]).permutation(num_samples)
    positions = np.arange(steps * global_batch)
    valid = (positions < num_samples).reshape(steps, global_batch)
    indices = order[positions % num_samples].reshape(steps, global_batch)
    num_losses = valid * np.broadcast_to(counts, num_samples)[indices]
    weights = valid * (num_ranks / num_losses.sum(axis=1, keepdims=True))
    mine = slice(rank * local_batch, (rank + 1) * local_batch)
    return indices[:, mine], weights[:, mine]


def evaluation_shard(num_samples, max_batch, rank, num_ranks):
    """(indices, weights) of one rank, each of shape (batches, batch): every sample once over all ranks, weight 1.

    Every rank gets the same number of batches of the same size, at most `max_batch`; what pads them has weight 0.
    """
    share = -(-num_samples // num_ranks)
    num_batches = -(-share // max_batch)
    batch = -(-share // num_batches)
    positions = np.arange(num_batches * batch * num_ranks).reshape(num_ranks, num_batches, batch)[rank]
    return positions % num_samples, (positions < num_samples).astype(np.float64)
