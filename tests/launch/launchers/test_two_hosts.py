"""On two hosts backends have the losses of one host, also over a slow network."""

import math
from pathlib import Path

import pytest

from common.model.cnn import Cnn
from common.model.description import parameters_of
from tests.support import two_hosts
from tests.support.running import ROOT, copied, records_in

pytestmark = pytest.mark.matrix

FLOAT32_BYTES = 4
# 4.8 MB of gradients take 0.19 s at this rate, and less than a tenth of that without a limit.
RATE, LEAST_STEP_SECONDS = "200mbit", 0.19


@pytest.fixture(scope="module")
def folder():
    if why_not := two_hosts.why_not():
        pytest.skip(why_not)
    with two_hosts.joined() as hosts:
        yield hosts


# Over MPI and over Gloo; test_slurm.py trains with every backend on two nodes.
def test_a_backend_trains_the_same_on_two_hosts_as_on_one(folder, checkout, short_run, on_one_node, tmp_path):
    backends = ("horovod_torch", "horovod_torch@gloo")
    before = two_hosts.bytes_sent("tandem1")
    arguments = (2, "--backends", ",".join(backends), "--workloads", "cnn", *short_run, "--machine", "here", "--results", tmp_path)
    with two_hosts.narrowed(RATE):
        done = two_hosts.on_both(folder, checkout, "launch.matrix", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    records = records_in(tmp_path)
    assert sorted(record["backend"] for record in records) == list(backends)
    num_steps, num_parameters = 6, sum(math.prod(initial.shape) for initial in parameters_of(Cnn()).values())
    for record in records:
        assert (record["num_nodes"], record["losses"]) == (2, on_one_node["horovod_torch"]["losses"])
        assert sum(record["train_seconds"]) > num_steps * LEAST_STEP_SECONDS / 2
    # Half of the gradients at least cross the link in every step, each way.
    num_bytes = len(records) * num_steps * num_parameters * FLOAT32_BYTES
    assert two_hosts.bytes_sent("tandem1") - before > num_bytes / 2


TORCHRUN = (2, "--launcher", "torchrun", "--backends", "ddp", "--workloads", "cnn", "--machine", "here")


def of_torchrun(done, results, expected):
    """The record of a run of torchrun on both hosts, which trained as the one that is expected, with rank 0 on the first of the list."""
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = records_in(results)
    assert (record["launcher"], record["num_nodes"], record["in_sync"], record["losses"]) == ("torchrun", 2, True, expected["losses"])
    assert record["environment"]["host"] == "tandem2"
    return record


def test_without_an_mpiexec_ssh_starts_torchrun_on_both_hosts(folder, short_run, on_one_node, tmp_path):
    checkout = copied(tmp_path)
    (checkout / ".venv").unlink()
    for source, target in (
        *((path, checkout / ".venv") for path in (ROOT / ".venv").iterdir() if path.name != "bin"),
        *((path, checkout / ".venv" / "bin") for path in (ROOT / ".venv" / "bin").iterdir()),
        *((path, tmp_path / "bin") for place in ("/usr/bin", "/usr/sbin", "/bin", "/sbin") for path in Path(place).iterdir()),
        (folder / "reach", tmp_path / "first"),
    ):
        target.mkdir(exist_ok=True, parents=True)
        if not source.name.startswith(("mpi", "hydra", "srun")) and not (target / source.name).exists():
            (target / source.name).symlink_to(source)
    (tmp_path / "first" / "reach").rename(tmp_path / "first" / "ssh")
    path = f"{tmp_path}/first:{tmp_path}/bin"
    arguments = (*TORCHRUN, *short_run, "--results", tmp_path)
    done = two_hosts.on_both(folder, checkout, "launch.matrix", *arguments, hosts="last_first", PATH=path, LATE_HOST="tandem2")
    record = of_torchrun(done, tmp_path, on_one_node["ddp"])
    assert "ssh starts torchrun's agents" in done.stderr
    assert "launch.launchers.ssh 2 tandem2,tandem1 " in record["command"]
