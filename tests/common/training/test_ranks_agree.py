"""What must be the same on all ranks: they compare it, and all name the ranks that have another."""

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from common.config import Settings
from common.errors import Diverged, RunError
from common.process.ranks import Ranks
from common.training import agreement, checks
from tests.common.training.test_checkpoints import ABOUT
from tests.common.training.test_loop import new_record


def on_ranks(*calls):
    """What each rank's call(trainer) returns or raises; the ranks are threads, which add up their values."""
    arrived, values = threading.Barrier(len(calls), timeout=10), [None] * len(calls)

    class Rank:
        def __init__(self, rank):
            self.ranks = Ranks(rank, len(calls), rank, len(calls))

        def sum(self, value):
            values[self.ranks.rank] = value
            arrived.wait()
            total = np.sum(values, axis=0)
            arrived.wait()
            return total

    def run(rank, call):
        try:
            return call(Rank(rank))
        except RunError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, range(len(calls)), calls))


def dataset(digest):
    return SimpleNamespace(digest=digest)


EPOCHS = dataclasses.replace(Settings(), epochs=3)
COMPARISONS = [
    (checks.expect_same_data, dataset("a"), dataset("b"), "have read different data"),
    (checks.expect_same_settings, Settings(), EPOCHS, "have different settings"),
    (checks.expect_same_settings, Settings(), dataclasses.replace(Settings(), learning_rate=2.0), "have different settings"),
    (checks.expect_same_checkpoint, ABOUT, ABOUT._replace(epochs=0, best_accuracy=None), "resume from different checkpoints"),
]


@pytest.mark.parametrize(("expect_same", "usual", "different", "message"), COMPARISONS)
def test_all_ranks_name_the_rank_that_has_another(expect_same, usual, different, message, monkeypatch):
    monkeypatch.setattr(agreement.socket, "gethostname", lambda: "nid001")
    errors = on_ranks(*(lambda trainer, value=value: expect_same(trainer, value) for value in (usual, usual, different)))
    assert {type(error) for error in errors} == {agreement.OutOfSync}
    (text,) = set(map(str, errors))
    assert text.startswith(f"the ranks {message}: rank 2 (nid001) has not the same as rank 0 (nid001); ")
    assert on_ranks(*(lambda trainer: expect_same(trainer, usual),) * 3) == [None] * 3


def test_nodes_may_have_folders_and_names_of_their_own():
    there = dataclasses.replace(Settings(), data_dir="/scratch", checkpoint_dir="/scratch", machine="b", results="/r", watchdog_timeout=1.0)
    assert (
        on_ranks(*(lambda trainer, value=value: checks.expect_same_settings(trainer, value) for value in (Settings(), there))) == [None] * 2
    )


@pytest.mark.parametrize(
    ("digests", "named"),
    [
        ("ab", "rank 1 (n1) has not the same as rank 0 (n0)"),
        ("baa", "rank 0 (n0) has not the same as rank 1 (n1)"),
        ("abab", "rank 1 (n1), rank 3 (n3) have not the same as rank 0 (n0)"),
        ("a" * 20 + "b" * 10, "rank 26 (n26), rank 27 (n27), 2 more have not the same as rank 0 (n0)"),
    ],
)
def test_ranks_are_named_that_differ_from_most(digests, named):
    assert agreement.describe([digest.encode() for digest in digests], [f"n{rank}" for rank in range(len(digests))]).endswith(named)


def test_replicas_that_differ_end_the_run():
    records_of_ranks = [new_record(), new_record()]

    def compare(trainer):
        trainer.state = lambda with_optimizer_state: {"weight": np.full(2, float(trainer.ranks.rank))}
        checks.compare_replicas(trainer, records_of_ranks[trainer.ranks.rank], "after epoch 1")

    assert {type(error) for error in on_ranks(compare, compare)} == {agreement.OutOfSync}
    assert [record.in_sync for record in records_of_ranks] == [False, False]


def test_buffers_that_differ_are_recorded_and_do_not_end_the_run():
    records_of_ranks = [new_record(), new_record()]

    def compare(trainer):
        record = records_of_ranks[trainer.ranks.rank]
        for when, rank in (("before training", 0), ("after epoch 1", trainer.ranks.rank), ("after epoch 2", 0)):
            state = {"weight": np.zeros(2), "buffer/mean": np.full(2, float(rank))}
            trainer.state = lambda with_optimizer_state, state=state: state
            checks.compare_replicas(trainer, record, when)

    on_ranks(compare, compare)
    assert [(record.in_sync, record.buffers_in_sync, len(record.buffer_digests)) for record in records_of_ranks] == [(True, False, 3)] * 2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_parameters_that_are_not_finite_on_one_rank_have_diverged_on_all(value):
    def compare(trainer):
        state = {"weight": np.array([0.0, value if trainer.ranks.rank else 1.0]), "bias": np.zeros(1)}
        trainer.state = lambda with_optimizer_state: state
        checks.compare_replicas(trainer, new_record(), "after epoch 1")

    errors = on_ranks(compare, compare)
    assert {type(error) for error in errors} == {Diverged}
    assert {error.status for error in errors} == {"diverged"}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_first_step_is_named_whose_loss_is_not_finite_on_any_rank(value):
    records_of_ranks = [new_record(), new_record()]

    def expect_finite(trainer):
        losses = np.array([1.0, 2.0, value if trainer.ranks.rank else 3.0, np.nan])
        checks.expect_finite(trainer, losses, records_of_ranks[trainer.ranks.rank], epoch=1)

    texts = {str(error) for error in on_ranks(expect_finite, expect_finite)}
    assert len(texts) == 1
    message = f"the loss of step 3 of epoch 2 is {value}, the first that is not finite, after the update of step 2; lower --learning-rate"
    assert texts.pop().startswith(message)
    assert records_of_ranks[0].losses[:2] == [1.0, 2.0]
