"""Backends train ResNet-50 alike: as the plain run with frozen statistics, and as one another with the statistics of each rank's batch."""

import functools

import numpy as np
import pytest

from tests.support.running import train_in_turn

pytestmark = pytest.mark.matrix

# Six steps of a small model (tests/support/small_models.py).
ARGUMENTS = (
    "--workload", "resnet50", "--scaling", "strong", "--batch-size", "8", "--epochs", "2", "--learning-rate", "0.01",
    "--learning-rate-factor", "4", "--warmup-epochs", "0.66", "--precision", "fp64",
)  # fmt: skip
RUNS = ("frozen_statistics", "small_resnet")
# DeepSpeed's master parameters are float32.
BOUNDS = {"horovod_torch": 1e-10, "horovod_tf": 1e-10, "horovod_keras": 1e-10, "fsdp": 1e-10, "deepspeed_zero": 1e-6}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A function that returns {fault: record} of a backend at 2 ranks, or of `single`."""

    @functools.cache
    def once(backend):
        folder, ranks = tmp_path_factory.mktemp("runs"), 1 if backend == "single" else 2
        found = train_in_turn(backend, ranks, folder, [(fault, *ARGUMENTS) for fault in RUNS])
        return {fault: record for fault, (record, _) in zip(RUNS, found, strict=True)}

    return once


def disagreement(record, reference):
    """The largest relative difference between the losses of two runs at the same step."""
    for one in (record, reference):
        assert (one["status"], one["in_sync"], len(one["losses"])) == ("ok", True, 6), one["error"]
    losses, expected = (np.array(one["losses"]) for one in (record, reference))
    return np.max(np.abs(losses - expected) / np.abs(expected))


@pytest.mark.parametrize(("backend", "bound"), [("ddp", 1e-10), *BOUNDS.items()])
def test_with_frozen_statistics_every_step_has_the_loss_of_the_plain_run(trained, backend, bound):
    assert disagreement(trained(backend)["frozen_statistics"], trained("single")["frozen_statistics"]) < bound


@pytest.mark.parametrize(("backend", "bound"), BOUNDS.items())
def test_with_the_statistics_of_each_ranks_batch_every_step_has_the_loss_of_ddp(trained, backend, bound):
    assert disagreement(trained(backend)["small_resnet"], trained("ddp")["small_resnet"]) < bound


def test_with_the_statistics_of_each_ranks_batch_two_ranks_train_another_function_than_one(trained):
    assert disagreement(trained("ddp")["small_resnet"], trained("single")["small_resnet"]) > 1e-4
