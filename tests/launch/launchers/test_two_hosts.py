"""On two hosts backends have the losses of one host, also over a slow network."""

import math

import pytest

from common.models import Cnn, parameters_of
from tests.support import two_hosts

pytestmark = [pytest.mark.matrix, pytest.mark.long]

FLOAT32_BYTES = 4


@pytest.fixture(scope="module")
def folder():
    if why_not := two_hosts.why_not():
        pytest.skip(why_not)
    with two_hosts.joined() as made:
        yield made


@pytest.fixture(scope="module")
def train(folder, checkout, short_run, on_one_node, tmp_path_factory):
    """A function that trains a backend with a rank on each host, expects the losses of one host, and gives the record."""

    def checked(backend):
        before = two_hosts.bytes_sent("tandem1")
        record = two_hosts.matrix(folder, checkout, tmp_path_factory.mktemp("results"), backend, "--workloads", "cnn", *short_run)
        assert record["num_nodes"] == 2
        assert record["losses"] == on_one_node[backend]["losses"]
        # Half of the gradients at least cross the link in every step, each way.
        num_parameters = sum(math.prod(initial.shape) for initial in parameters_of(Cnn()).values())
        assert two_hosts.bytes_sent("tandem1") - before > len(record["losses"]) * num_parameters * FLOAT32_BYTES / 2
        return record

    return checked


# Over Gloo and over MPI; test_slurm.py trains with every backend on two nodes.
@pytest.mark.parametrize("backend", ["deepspeed_zero", "horovod_tf"])
def test_a_backend_trains_the_same_on_two_hosts_as_on_one(backend, train):
    train(backend)


def test_a_slow_network_changes_the_time_and_not_the_training(train):
    with two_hosts.narrowed("200mbit"):
        record = train("ddp")
    # 4.8 MB of gradients take 0.19 s at 200 Mbit/s, and less than a tenth of that without a limit.
    assert sum(record["train_seconds"]) > len(record["losses"]) * 0.19 / 2
