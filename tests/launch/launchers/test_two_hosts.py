"""On two hosts backends have the losses of one host, also over a slow network."""

import contextlib
import math
from pathlib import Path

import pytest

from common.backends import file_of
from common.model.families import Cnn, parameters_of
from tests.support import two_hosts
from tests.support.running import ROOT, copied, records_in

pytestmark = [pytest.mark.matrix, pytest.mark.long]

FLOAT32_BYTES = 4


@pytest.fixture(scope="module")
def folder():
    if why_not := two_hosts.why_not():
        pytest.skip(why_not)
    with two_hosts.joined() as hosts:
        yield hosts


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


TORCHRUN = (2, "--launcher", "torchrun", "--backends", "ddp", "--workloads", "cnn", "--machine", "here")


def of_torchrun(done, results):
    """The record of a run of torchrun on both hosts, whose rank 0 was on the first of the list."""
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = records_in(results)
    assert (record["launcher"], record["num_nodes"], record["in_sync"], len(record["losses"])) == ("torchrun", 2, True, 6)
    assert record["environment"]["host"] == "tandem2"
    return record


# By themselves the agents would number their hosts in the order of their names.
def test_rank_0_of_torchrun_is_on_the_first_host_of_the_list(folder, checkout, short_run, tmp_path):
    arguments = (*TORCHRUN, *short_run, "--results", tmp_path)
    of_torchrun(two_hosts.on_both(folder, checkout, "launch.matrix", *arguments, hosts="last_first"), tmp_path)


def test_without_an_mpiexec_ssh_starts_torchrun_on_both_hosts(folder, short_run, tmp_path):
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
    record = of_torchrun(done, tmp_path)
    assert "ssh starts torchrun's agents" in done.stderr
    assert "launch.launchers.ssh 2 tandem2,tandem1 " in record["command"]
