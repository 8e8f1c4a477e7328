"""Sharding: N ranks process the samples of one rank, none twice, none lost; checked for random sizes, ranks and batches."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from common.data.sharding import Epoch, Shard, evaluation_shard, num_steps, training_shard
from tests.support.mistakes import refusal

examples = settings(max_examples=60)


ALONE = Shard(0, 1)


def shards_of(epoch, num_ranks, *num_losses):
    return [training_shard(epoch, Shard(rank, num_ranks), *num_losses) for rank in range(num_ranks)]


@st.composite
def epochs(draw):
    """Returns (an epoch, a number of ranks that divides its global batch)."""
    num_ranks, local_batch = draw(st.integers(1, 9)), draw(st.integers(1, 12))
    num_samples = draw(st.integers(num_ranks * local_batch, 300))
    return Epoch(num_samples, num_ranks * local_batch, draw(st.integers(0, 2**32)), draw(st.integers(0, 50))), num_ranks


@examples
@given(epochs())
def test_ranks_together_see_what_one_rank_sees_in_the_same_order(drawn):
    epoch, num_ranks = drawn
    ((whole, whole_weights),) = shards_of(epoch, 1)
    shards = shards_of(epoch, num_ranks)
    assert {(indices.shape, weights.shape) for indices, weights in shards} == {
        ((num_steps(*epoch[:2]), epoch.global_batch // num_ranks),) * 2
    }
    np.testing.assert_array_equal(np.concatenate([indices for indices, _ in shards], axis=1), whole)
    np.testing.assert_allclose(np.concatenate([weights for _, weights in shards], axis=1), num_ranks * whole_weights, rtol=1e-12)


@examples
@given(epochs())
def test_an_epoch_holds_every_sample_once_but_those_dropped(drawn):
    epoch, num_ranks = drawn
    indices, weights = (np.concatenate(arrays, axis=1) for arrays in zip(*shards_of(epoch, num_ranks), strict=True))
    assert indices.min() >= 0
    assert indices.max() < epoch.num_samples
    assert (weights > 0).all()
    assert len(np.unique(indices)) == indices.size == epoch.num_samples - epoch.num_samples % epoch.global_batch


@examples
@given(epochs(), st.integers(1, 6))
def test_averaging_weighted_losses_over_ranks_gives_the_mean_over_losses_however_many_a_sample_has(drawn, num_losses):
    epoch, num_ranks = drawn
    losses = np.random.default_rng(epoch.seed).uniform(0.1, 10, (epoch.num_samples, num_losses))
    shards = shards_of(epoch, num_ranks, num_losses)
    averaged = sum((weights * losses.sum(axis=1)[indices]).sum(axis=1) for indices, weights in shards) / num_ranks
    ((whole, _),) = shards_of(epoch, 1)
    np.testing.assert_allclose(averaged, losses[whole].mean(axis=(1, 2)), rtol=1e-12)


def test_epochs_and_seeds_have_orders_of_their_own():
    def order(seed, epoch):
        return training_shard(Epoch(200, 20, seed, epoch), ALONE)[0].tobytes()

    pairs = [(1, 0), (1, 1), (2, 0), (2, 1), (0, 1), (1, 2)]
    assert len({order(*pair) for pair in pairs}) == len(pairs)
    assert order(1, 0) == order(1, 0)


def test_steps_of_an_epoch():
    assert [num_steps(num_samples, 32) for num_samples in (32, 64, 95, 1437)] == [1, 2, 2, 44]


@examples
@given(st.integers(1, 300), st.integers(1, 100), st.integers(1, 9))
def test_evaluation_covers_each_sample_once_in_equal_batches(num_samples, max_batch, num_ranks):
    shards = [evaluation_shard(num_samples, max_batch, Shard(rank, num_ranks)) for rank in range(num_ranks)]
    ((num_batches, batch),) = {indices.shape for indices, _ in shards}
    assert batch <= max_batch
    assert num_batches == math.ceil(math.ceil(num_samples / num_ranks) / max_batch)
    assert all(weights.shape == indices.shape for indices, weights in shards)
    indices, weights = (np.concatenate(arrays).ravel() for arrays in zip(*shards, strict=True))
    assert set(weights.tolist()) <= {0.0, 1.0}
    assert sorted(indices[weights == 1].tolist()) == list(range(num_samples))
    assert indices.min() >= 0
    assert indices.max() < num_samples


def test_a_batch_that_no_step_fills_is_refused():
    text = refusal(training_shard, Epoch(31, 32, 1, 0), ALONE)
    assert text.startswith("a global batch of 32 exceeds the 31 samples, which leaves no step")
