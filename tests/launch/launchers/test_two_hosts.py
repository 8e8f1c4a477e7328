"""On two hosts, which ssh reaches, backends have the losses of one host, also over a slow network, and what does not start is named."""

import math

import pytest

from common.model.cnn import Cnn
from common.model.description import parameters_of
from common.ranks import binding
from launch.run.failures import REACH
from tests.support import two_hosts
from tests.support.running import records_in

pytestmark = pytest.mark.matrix

FLOAT32_BYTES = 4
# 4.8 MB of gradients take 0.19 s at this rate, and less than a tenth of that without a limit.
RATE, LEAST_STEP_SECONDS = "200mbit", 0.19
OF_DDP = (2, "--backends", "ddp", "--workloads", "cnn")


@pytest.fixture(scope="module")
def hosts():
    if why_not := two_hosts.why_not():
        pytest.skip(why_not)
    with two_hosts.joined() as hosts:
        yield hosts


# Over MPI and over Gloo; test_slurm.py trains with every backend on two nodes.
def test_a_backend_trains_the_same_on_two_hosts_as_on_one(hosts, checkout, short_run, on_one_node, tmp_path):
    backends = ("horovod_torch", "horovod_torch@gloo")
    before = two_hosts.bytes_sent(hosts)
    with two_hosts.narrowed(hosts, RATE):
        done = two_hosts.matrix(
            hosts, checkout, 2, "--backends", ",".join(backends), "--workloads", "cnn", *short_run, "--results", tmp_path
        )
    assert done.returncode == 0, done.stdout + done.stderr
    records = records_in(tmp_path)
    assert sorted(record["backend"] for record in records) == list(backends)
    num_steps, num_parameters = 6, sum(math.prod(initial.shape) for initial in parameters_of(Cnn()).values())
    for record in records:
        assert (record["num_nodes"], record["losses"]) == (2, on_one_node["horovod_torch"]["losses"])
        environment = record["environment"]
        assert environment["host_by_rank"] == list(two_hosts.HOSTS)
        assert environment["numa_nodes_by_rank"] == list(map(binding.numa_nodes_of, environment["cores_by_rank"]))
        assert sum(record["train_seconds"]) > num_steps * LEAST_STEP_SECONDS / 2
    # Half of the gradients at least cross the link in every step, each way.
    num_bytes = len(records) * num_steps * num_parameters * FLOAT32_BYTES
    assert two_hosts.bytes_sent(hosts) - before > num_bytes / 2


def test_torchrun_has_an_agent_on_each_host_and_rank_0_on_the_first_of_the_list(hosts, checkout, short_run, on_one_node, tmp_path):
    arguments = (*OF_DDP, "--launcher", "torchrun", *short_run, "--results", tmp_path)
    done = two_hosts.matrix(hosts, checkout, *arguments, nodes="last_first")
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = records_in(tmp_path)
    run = (record["launcher"], record["num_nodes"], record["in_sync"], record["losses"])
    assert run == ("torchrun", 2, True, on_one_node["ddp"]["losses"])
    assert record["environment"]["host"] == "tandem2"


def test_the_check_reaches_every_node(hosts, checkout, tmp_path):
    done = two_hosts.matrix(hosts, checkout, *OF_DDP, "--results", tmp_path, "--check")
    assert "ok      ranks        2 ranks on tandem1, tandem2 meet; " in done.stdout, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("node", "line"),
    [
        (two_hosts.DOWN, f"ssh: connect to host {two_hosts.DOWN} port 22: No route to host"),
        (two_hosts.STRANGER, "Host key verification failed."),
    ],
)
def test_the_check_and_the_record_have_the_line_of_ssh_on_a_node_that_it_does_not_reach(node, line, hosts, checkout, tmp_path):
    (tmp_path / "nodes").write_text(f"tandem1\n{node}\n")
    checked, done = (
        two_hosts.matrix(hosts, checkout, *OF_DDP, "--epochs", 1, "--results", tmp_path, *further, nodes=tmp_path / "nodes")
        for further in (["--check"], [])
    )
    (record,) = records_in(tmp_path)
    assert (done.returncode, checked.returncode, record["status"]) == (1, 1, "failed"), done.stdout + done.stderr
    assert record["error"] == f"a node is not reached: {line}; {REACH}"
    assert f"problem ranks        2 ranks on 2 nodes fail: {record['error']}\n" in checked.stdout
