"""On two hosts backends have the losses of one host, also over a slow network."""

import contextlib
import math

import pytest

from common.backends import file_of
from common.model.families import Cnn, parameters_of
from tests.support import two_hosts

pytestmark = [pytest.mark.matrix, pytest.mark.long]

FLOAT32_BYTES = 4


@pytest.fixture(scope="module")
def folder():
    if why_not := two_hosts.why_not():
        pytest.skip(why_not)
    with two_hosts.joined() as made:
        yield made


# Over Gloo, by PyTorch and by Horovod, and over MPI on a slow link; test_slurm.py trains with every backend on two nodes.
@pytest.mark.parametrize(("backend", "rate"), [("deepspeed_zero", None), ("horovod_torch@gloo", None), ("horovod_torch", "200mbit")])
def test_a_backend_trains_the_same_on_two_hosts_as_on_one(backend, rate, folder, checkout, short_run, on_one_node, tmp_path):
    before = two_hosts.bytes_sent("tandem1")
    with two_hosts.narrowed(rate) if rate else contextlib.nullcontext():
        record = two_hosts.matrix(folder, checkout, tmp_path, backend, "--workloads", "cnn", *short_run)
    assert record["num_nodes"] == 2
    assert record["losses"] == on_one_node[file_of(backend)]["losses"]
    num_steps, num_parameters = len(record["losses"]), sum(math.prod(initial.shape) for initial in parameters_of(Cnn()).values())
    # Half of the gradients at least cross the link in every step, each way.
    assert two_hosts.bytes_sent("tandem1") - before > num_steps * num_parameters * FLOAT32_BYTES / 2
    # 4.8 MB of gradients take 0.19 s at 200 Mbit/s, and less than a tenth of that without a limit.
    assert not rate or sum(record["train_seconds"]) > num_steps * 0.19 / 2
