"""The samples of each rank at each step, as indices and weights."""

import os
from typing import NamedTuple

import numpy as np

from common.errors import UserError

# Limits the steps of an epoch, for verifications and tests: these need a few steps only.
STEPS_VARIABLE = "TANDEM_STEPS_PER_EPOCH"


class Epoch(NamedTuple):
    """An epoch of training, which decides the samples of every step."""

    num_samples: int
    global_batch: int
    seed: int
    number: int


class Shard(NamedTuple):
    """A shard of a global batch: its number, of `degree` shards, which are the data-parallel degree."""

    number: int
    degree: int


def num_steps(num_samples: int, global_batch: int) -> int:
    """Returns the number of steps of an epoch; an incomplete last global batch is dropped. Raises UserError if no step is left."""
    steps = num_samples // global_batch
    if steps == 0:
        raise UserError(
            f"a global batch of {global_batch} exceeds the {num_samples} samples, which leaves no step; "
            "use fewer ranks, or a smaller --batch-size or --accumulate"
        )
    return steps


def num_trained_steps(num_samples: int, global_batch: int) -> int:
    """Returns the number of steps of an epoch that are trained. Raises UserError if there is none."""
    num_possible = num_steps(num_samples, global_batch)
    return min(num_possible, int(os.environ.get(STEPS_VARIABLE) or num_possible))


def training_shard(epoch: Epoch, shard: Shard, num_losses: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices and the weights of the samples of one shard in an epoch, each of shape (steps, samples of a shard).

    One permutation per seed and epoch is split into global batches, and each of these into contiguous shards, without model
    parallelism one per rank: N ranks with batch b process at each step the samples of one rank with batch N*b.
    Weights are scaled so that the sum of weight * loss of a shard, averaged over shards, is the mean loss of the global batch.
    `num_losses` is the number of losses of a sample.
    """
    num_samples, global_batch = epoch.num_samples, epoch.global_batch
    local_batch = global_batch // shard.degree
    steps = num_steps(num_samples, global_batch)
    stream = np.random.default_rng([epoch.seed, epoch.number])
    indices = stream.permutation(num_samples)[: steps * global_batch].reshape(steps, global_batch)
    weights = np.full(indices.shape, shard.degree / (global_batch * num_losses))
    of_shard = slice(shard.number * local_batch, (shard.number + 1) * local_batch)
    return indices[:, of_shard], weights[:, of_shard]


def evaluation_shard(num_samples: int, max_batch: int, shard: Shard) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices and the weights of the samples of one shard, each of shape (batches, batch).

    Over all shards every sample occurs once with weight 1, and padding has weight 0. All shards have the same number of batches of the same
    size, at most `max_batch`.
    """
    share = -(-num_samples // shard.degree)
    num_batches = -(-share // max_batch)
    batch = -(-share // num_batches)
    positions = np.arange(num_batches * batch * shard.degree).reshape(shard.degree, num_batches, batch)[shard.number]
    return positions % num_samples, (positions < num_samples).astype(np.float64)
