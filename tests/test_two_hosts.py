"""On two hosts with a network between them: every backend trains what it trains on one, over the network, and over a slow one."""

import json
import math
import subprocess

import pytest

from common.models import Cnn, parameters_of
from tests import small_data, two_hosts
from tests.running import BIN, environ
from tests.test_agreement import DISTRIBUTED

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
    settings = ("--workloads", "cnn", *data[2:], "--batch-size", "8", "--epochs", "1", "--no-stop-at-target", "--machine", "here")
    variables = {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(folder / "reach")}

    def train(backends, on_both=False):
        where = ("--hosts", folder / "hosts", "--machine-file", folder / "two.toml") if on_both else ()
        results = tmp_path_factory.mktemp("results")
        command = [BIN / "python", "-m", "launch.matrix", "2", "--backends", ",".join(backends), *settings, "--results", results, *where]
        command = ["ip", "netns", "exec", "tandem1", "unshare", "--uts", "sh", "-c", 'hostname tandem1; exec "$@"', "sh", *command]
        done = subprocess.run(
            [str(part) for part in command],
            cwd=checkout,
            env=environ() | variables,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return {record["backend"]: record for record in (json.loads(path.read_text()) for path in results.glob("here/*.json"))}

    return train


def test_every_backend_trains_the_same_on_two_hosts_as_on_one(matrix):
    one = matrix(DISTRIBUTED)
    assert {record["nodes"] for record in one.values()} == {1}
    num_parameters = sum(math.prod(initial.shape) for initial in parameters_of(Cnn()).values())
    for backend in DISTRIBUTED:
        before = two_hosts.bytes_sent("tandem1")
        record = matrix([backend], on_both=True)[backend]
        assert record["nodes"] == 2
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
