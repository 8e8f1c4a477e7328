"""Under a real Slurm of two nodes: the matrix through srun, and the job script through sbatch."""

import json
import subprocess

import pytest

from tests import faults, slurm_cluster, small_data
from tests.running import BIN, environ
from tests.test_agreement import DISTRIBUTED

pytestmark = [pytest.mark.matrix, pytest.mark.long]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    if why_not := slurm_cluster.why_not():
        pytest.skip(why_not)
    with slurm_cluster.started(tmp_path_factory.mktemp("slurm")) as variables:
        yield environ() | variables


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    data = small_data.write(tmp_path_factory.mktemp("data"), 100)["cnn"]
    fixed = ["--workloads", "cnn", "--no-stop-at-target", "--no-account", "--machine", "here"]
    return [*data[2:], "--batch-size", "8", "--epochs", "1", *fixed]


def records_in(folder):
    return {record["backend"]: record for record in (json.loads(path.read_text()) for path in (folder / "here").glob("*.json"))}


def test_the_matrix_trains_the_same_on_two_nodes_through_srun_as_on_one(slurm, checkout, settings, tmp_path):
    matrix = [BIN / "python", "-m", "launch.matrix", "2", "--backends", ",".join(DISTRIBUTED), *settings]
    on_one_node = [*matrix, "--results", tmp_path / "one"]
    on_two_nodes = ["salloc", "-N2", "-n2", *matrix, "--ranks-per-node", "1", "--results", tmp_path / "two"]
    for command in (on_one_node, on_two_nodes):
        done = subprocess.run(command, cwd=checkout, env=slurm, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    one, two = records_in(tmp_path / "one"), records_in(tmp_path / "two")
    assert one.keys() == two.keys() == set(DISTRIBUTED)
    for backend, record in two.items():
        assert (record["launcher"], record["nodes"], one[backend]["launcher"], one[backend]["nodes"]) == ("srun", 2, "mpich", 1)
        assert record["losses"] == one[backend]["losses"], backend


def test_the_job_script_trains_through_sbatch(slurm, checkout, settings, tmp_path):
    small = ["--partition=all", "--gres=none", "--ntasks-per-node=1", "--cpus-per-task=1", f"--output={tmp_path}/out"]
    variables = {"TANDEM_SIZES": "1 2", "TANDEM_MACHINE_FILE": "local"}
    job = ["sbatch", "--wait", *small, "launch/jobs/jsc.sbatch", "--backends", "ddp", "--ranks-per-node", "1", *settings]
    done = subprocess.run(
        [*job, "--results", tmp_path], cwd=checkout, env=slurm | variables, capture_output=True, text=True, timeout=300, check=False
    )
    told = (tmp_path / "out").read_text() if (tmp_path / "out").exists() else ""
    assert done.returncode == 0, done.stdout + done.stderr + told
    found = [json.loads(path.read_text()) for path in tmp_path.glob("here/*.json")]
    assert sorted((record["ranks"], record["nodes"], record["launcher"]) for record in found) == [(1, 1, "srun"), (2, 2, "srun")]


def test_a_rank_that_is_stopped_under_srun_is_named_and_ended(slurm, checkout, tmp_path):
    settings = ("--ranks-per-node", "1", "--stall-limit", "20")
    around = ("salloc", "--quiet", "-N2", "-n2")
    record, _, left = faults.run(checkout, "horovod_torch", "stopped", tmp_path, *settings, around=around, variables=slurm)
    assert (record["status"], record["launcher"]) == ("failed", "srun")
    assert record["error"].startswith("rank 1 stood still and said nothing")
    assert left == []
