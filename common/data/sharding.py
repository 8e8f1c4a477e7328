"""The samples of each rank at each step, as indices and weights."""

from typing import NamedTuple

import numpy as np

from common.errors import UserError

LAST_BATCH = ("drop", "pad")


class Streamed(NamedTuple):
    """How samples are shuffled that can be read in order only: files of `file_size` samples, and a buffer of about `buffer_size`."""

    file_size: int
    buffer_size: int


def num_steps(num_samples, global_batch, last_batch):
    """Returns the steps per epoch. Raises UserError if --last-batch drop leaves none."""
    steps = num_samples // global_batch if last_batch == "drop" else -(-num_samples // global_batch)
    if steps == 0:
        raise UserError(
            f"a global batch of {global_batch} exceeds the {num_samples} samples, so --last-batch drop leaves no step; "
            "use fewer ranks, a smaller --batch-size or --accumulate, or --last-batch pad"
        )
    return steps


def training_shard(num_samples, global_batch, last_batch, seed, epoch, shard, num_shards, counts=1, streamed=None):
    """Returns (indices, weights) of one shard in one epoch, each of shape (steps, global_batch / num_shards).

    One permutation per (seed, epoch) is split into global batches, and each of these into contiguous shards, without model
    parallelism one per rank: N ranks with batch b process at each step the samples of one rank with batch N*b. Padding has weight 0.
    Weights are scaled so that the sum of weight * loss of a shard, averaged over shards, is the mean loss of the global batch.
    `counts` is the number of losses per sample; the mean is over losses. `streamed`: another order, see `_streamed_order`.
    """
    local_batch = global_batch // num_shards
    steps = num_steps(num_samples, global_batch, last_batch)
    stream = np.random.default_rng([seed, epoch])
    if streamed is None:
        order, positions = stream.permutation(num_samples), np.arange(steps * global_batch)
    else:
        order, positions = _streamed_order(stream, num_samples, (num_shards, steps, local_batch), streamed)
    positions = positions.reshape(steps, global_batch)
    valid = positions < num_samples
    indices = order[positions % num_samples]
    num_losses = valid * np.broadcast_to(counts, num_samples)[indices]
    weights = valid * (num_shards / num_losses.sum(axis=1, keepdims=True))
    of_shard = slice(shard * local_batch, (shard + 1) * local_batch)
    return indices[:, of_shard], weights[:, of_shard]


def steps_of_buffer(streamed, local_batch):
    """Returns the number of steps whose samples are in the buffer at once."""
    return max(1, streamed.buffer_size // local_batch)


def _streamed_order(stream, num_samples, shape, streamed):
    """Returns (order of the samples, the positions in it that each step has): files in random order, cut into one range per shard.

    Every shard reads its range from the front, a buffer at a time, whose samples it shuffles. Samples do not mix over ranges or buffers.
    """
    num_shards, steps, local_batch = shape
    firsts = stream.permutation(np.arange(0, num_samples, streamed.file_size))
    order = np.concatenate([np.arange(first, min(first + streamed.file_size, num_samples)) for first in firsts])
    positions = np.arange(num_shards * steps * local_batch).reshape(num_shards, -1)
    buffer = steps_of_buffer(streamed, local_batch) * local_batch
    for begin in range(0, positions.shape[1], buffer):
        part = slice(begin, begin + buffer)
        positions[:, part] = stream.permuted(positions[:, part], axis=1)
    return order, positions.reshape(shape).transpose(1, 0, 2)


def evaluation_shard(num_samples, max_batch, shard, num_shards):
    """Returns (indices, weights) of one shard, each of shape (batches, batch). Over all shards every sample occurs once, with weight 1.

    All shards have the same number of batches of the same size, at most `max_batch`. Padding has weight 0.
    """
    share = -(-num_samples // num_shards)
    num_batches = -(-share // max_batch)
    batch = -(-share // num_batches)
    positions = np.arange(num_batches * batch * num_shards).reshape(num_shards, num_batches, batch)[shard]
    return positions % num_samples, (positions < num_samples).astype(np.float64)
