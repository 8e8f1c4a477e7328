"""Every backend trains the same thing, at any number of ranks; and what would break that is caught."""

import functools

import numpy as np
import pytest

from tests.running import train

pytestmark = pytest.mark.matrix

DISTRIBUTED = ("ddp", "horovod_torch", "horovod_tf")
# One epoch of 90 steps, the last of them padded unevenly over the ranks, under a rate that rises for two thirds of it.
ONE_MATHEMATICS = (
    "--scaling", "strong", "--batch-size", "16", "--last-batch", "pad", "--epochs", "1", "--rate-factor", "4", "--warmup-epochs", "0.66",
)  # fmt: skip
FEW_STEPS = ("--scaling", "strong", "--batch-size", "240", "--last-batch", "pad", "--epochs", "1")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A function that trains as tests.running.train does, and once only for the same arguments."""

    @functools.cache
    def once(backend, ranks, *arguments, sabotage="none"):
        return train(backend, ranks, tmp_path_factory.mktemp("run"), *arguments, sabotage=sabotage)

    return once


def disagreement(record, reference):
    """The largest relative difference between the losses of two runs at the same step."""
    losses, expected = np.array(record["losses"], float), np.array(reference["losses"], float)
    assert len(losses) == len(expected)
    return np.max(np.abs(losses - expected) / np.abs(expected))


@pytest.mark.parametrize(
    ("backend", "ranks", "optimizer"),
    [*((backend, ranks, "sgd") for backend in DISTRIBUTED for ranks in (1, 2, 4)), *((backend, 2, "adam") for backend in DISTRIBUTED)],
)
def test_in_float64_every_step_has_the_loss_of_the_plain_run(trained, backend, ranks, optimizer):
    arguments = (*ONE_MATHEMATICS, "--precision", "fp64", "--optimizer", optimizer)
    status, reference, expected = trained("single", 1, *arguments)
    assert status == 0
    status, record, parameters = trained(backend, ranks, *arguments)
    assert status == 0, record["error"]
    assert record["ranks"] == ranks
    assert record["in_sync"] is True
    assert record["workload_digest"] == reference["workload_digest"]
    assert len(record["losses"]) >= 60
    assert disagreement(record, reference) < 1e-10
    assert record["accuracies"] == reference["accuracies"]
    for name, values in expected.items():
        np.testing.assert_allclose(parameters[name], values, rtol=1e-9, atol=1e-9 * np.abs(values).max(), err_msg=name)


@pytest.mark.parametrize("backend", DISTRIBUTED)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_in_float32_the_first_two_steps_have_the_loss_of_the_plain_run(trained, backend, ranks):
    _, reference, _ = trained("single", 1, *FEW_STEPS)
    status, record, _ = trained(backend, ranks, *FEW_STEPS)
    assert status == 0, record["error"]
    np.testing.assert_allclose(record["losses"][:2], reference["losses"][:2], rtol=1e-6)


def test_weak_scaling_at_two_ranks_is_one_rank_with_twice_the_batch(trained):
    weak = ("--batch-size", "8", "--epochs", "1", "--precision", "fp64", "--warmup-epochs", "0.5")
    _, record, _ = trained("ddp", 2, *weak)
    _, reference, _ = trained("single", 1, *weak[2:], "--batch-size", "16", "--rate-factor", "2")
    assert record["learning_rates"] == reference["learning_rates"]
    assert disagreement(record, reference) < 1e-10


@pytest.mark.parametrize("backend", DISTRIBUTED)
@pytest.mark.parametrize("sabotage", ["no_all_reduce", "same_shard", "summed_gradients"])
def test_a_sabotaged_run_does_not_pass_for_an_equal_one(trained, backend, sabotage):
    arguments = (*ONE_MATHEMATICS, "--precision", "fp64", "--optimizer", "sgd")
    _, reference, _ = trained("single", 1, *arguments)
    status, record, _ = trained(backend, 2, *arguments, sabotage=sabotage)
    assert not disagreement(record, reference) < 1e-4
    if sabotage == "no_all_reduce":
        assert (status, record["status"], record["in_sync"]) == (1, "failed", False)
        assert "differ after epoch 1" in record["error"]


def test_replicas_that_start_unlike_are_caught_before_training(trained):
    status, record, _ = trained("ddp", 2, *FEW_STEPS, sabotage="unlike_start")
    assert (status, record["status"], record["in_sync"], record["losses"]) == (1, "failed", False, [])
    assert "differ before training" in record["error"]
