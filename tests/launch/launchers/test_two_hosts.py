"""On two hosts every backend has the losses of one host, also over a slow network."""

import math

import pytest

from common.models import Cnn, parameters_of
from tests.support import small_data, two_hosts
from tests.support.backends import DISTRIBUTED

pytestmark = [pytest.mark.matrix, pytest.mark.long]

FLOAT32_BYTES = 4


@pytest.fixture(scope="module")
def folder():
    if why_not := two_hosts.why_not():
        pytest.skip(why_not)
    with two_hosts.joined() as made:
        yield made


@pytest.fixture(scope="module")
def matrix(folder, checkout, tmp_path_factory):
    """A function that trains backends with 2 ranks, on one host or on both, and gives their records."""
    data = small_data.write(tmp_path_factory.mktemp("data"), 100)["cnn"]
    settings = ("--workloads", "cnn", *data[2:], "--batch-size", "8", "--epochs", "1")
    return lambda backends, on_both=False: two_hosts.matrix(
        folder, checkout, tmp_path_factory.mktemp("results"), backends, *settings, on_both=on_both
    )


def test_every_backend_trains_the_same_on_two_hosts_as_on_one(matrix):
    one = matrix(DISTRIBUTED)
    assert {record["num_nodes"] for record in one.values()} == {1}
    num_parameters = sum(math.prod(initial.shape) for initial in parameters_of(Cnn()).values())
    for backend in DISTRIBUTED:
        before = two_hosts.bytes_sent("tandem1")
        record = matrix([backend], on_both=True)[backend]
        assert record["num_nodes"] == 2
        assert record["losses"] == one[backend]["losses"], backend
        # Half of the gradients at least cross the link in every step, each way.
        assert two_hosts.bytes_sent("tandem1") - before > len(record["losses"]) * num_parameters * FLOAT32_BYTES / 2


def test_a_slow_network_changes_the_time_and_not_the_training(matrix):
    fast = matrix(["ddp"], on_both=True)["ddp"]
    with two_hosts.narrowed("200mbit"):
        slow = matrix(["ddp"], on_both=True)["ddp"]
    assert slow["losses"] == fast["losses"]
    # 4.8 MB of gradients take 0.19 s at 200 Mbit/s, and less than a tenth of that without a limit.
    assert sum(slow["train_seconds"]) > len(slow["losses"]) * 0.19 / 2
