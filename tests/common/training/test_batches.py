"""The digests of the samples and of the first data of a training, from what several ranks have taken."""

import numpy as np
import pytest

from common.data.sharding import Epoch, Shard, training_shard
from common.trainer import Batch
from common.training import batches
from common.training.batches import BatchLog
from tests.support.rank_0 import Rank0, on_ranks

NUM_SAMPLES, GLOBAL_BATCH = 43, 8
DATA = np.arange(NUM_SAMPLES * 3.0).reshape(NUM_SAMPLES, 3)


def digests(num_ranks, degree=None, change=lambda rank, rows: rows, seed=1, epoch=0):
    """Returns the digests of the samples and of the first data that `num_ranks` ranks have, of which several may share a shard."""
    degree = degree or num_ranks

    def of_rank(trainer):
        shard = Shard(min(trainer.ranks.rank // (num_ranks // degree), degree - 1), degree)
        indices, weights = training_shard(Epoch(NUM_SAMPLES, GLOBAL_BATCH, seed, epoch), shard)
        log = BatchLog()
        for row, weight in zip(change(trainer.ranks.rank, indices), weights, strict=False):
            log.add(row, Batch(DATA[row], row % 4, weight))
        return batches.digest_of_samples(trainer, log, indices.shape, shard), batches.digest_of_data(trainer, log.first, shard)

    (digest, *others) = on_ranks(num_ranks, of_rank)
    assert {digest, *others} == {digest}
    return digest


def test_the_order_of_the_samples_has_one_digest_at_every_number_of_ranks():
    samples, data = zip(*(digests(num_ranks) for num_ranks in (1, 2, 4)), strict=True)
    assert len(set(samples)) == 1
    # The weights are those of a shard.
    assert len(set(data)) == 3


def test_ranks_that_share_a_model_and_a_server_change_nothing():
    assert digests(4, degree=2) == digests(2)
    assert digests(3, degree=2, change=lambda rank, rows: rows[:0] if rank == 2 else rows) == digests(2)


@pytest.mark.parametrize("num_at_once", [1, 3, 10**6])
def test_a_long_epoch_is_added_up_in_parts(num_at_once, monkeypatch):
    whole = digests(2)
    monkeypatch.setattr(batches, "NUM_AT_ONCE", num_at_once * GLOBAL_BATCH)
    assert digests(2) == whole


FAULTS = {
    "the same shard on every rank": lambda _, rows: training_shard(Epoch(NUM_SAMPLES, GLOBAL_BATCH, 1, 0), Shard(0, 2))[0],
    "another order on a rank": lambda rank, rows: rows[::-1] if rank else rows,
    "another epoch": lambda rank, rows: training_shard(Epoch(NUM_SAMPLES, GLOBAL_BATCH, 1, 1), Shard(rank, 2))[0],
    "a step less": lambda _, rows: rows[:-1],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_other_samples_have_another_digest(fault):
    assert digests(2, change=FAULTS[fault])[0] != digests(2)[0]


def test_the_first_data_may_be_nested_and_its_types_and_shapes_count():
    def digest(*parts):
        return batches.digest_of_data(Rank0(), Batch(*parts), Shard(0, 1))

    nested = {"image": DATA[:4], "more": (np.arange(4), ["not counted"])}
    known = digest(nested, np.arange(4), np.ones(4))
    assert known == digest(nested | {"image": DATA[:4].copy()}, np.arange(4), np.ones(4))
    different = [
        digest(nested | {"image": DATA[:4] + 1e-9}, np.arange(4), np.ones(4)),
        digest(nested | {"image": DATA[:4].astype(np.float32)}, np.arange(4), np.ones(4)),
        digest(nested, np.arange(4)[::-1], np.ones(4)),
        digest(nested, np.arange(4), np.ones(4) / 2),
    ]
    assert known not in different
