"""What a job and its ranks ask for at each site, as the pages that the site's machine file names have it."""

import re
import socket
from pathlib import Path

import pytest

from launch.launchers import detect, machine_files
from launch.launchers.machine_files import read
from launch.matrix import settings_of
from launch.run import job_scripts
from launch.run.options import Matrix, RunSettings
from launch.run.plan import plan
from launch.run.runner import start_of
from tests.support.forked import run_module

JSC = ["--nodes=2", "--ntasks-per-node=4", "--threads-per-core=1", "--gres=gpu:4", "--partition=booster"]
NERSC = [
    "--nodes=2",
    "--ntasks-per-node=4",
    "--cpus-per-task=16",
    "--threads-per-core=1",
    "--gpus-per-node=4",
    "--qos=debug",
    "--time=00:30:00",
]
AURORA_CORES = "list:1-8:9-16:17-24:25-32:33-40:41-48:53-60:61-68:69-76:77-84:85-92:93-100"
# Tandem does not use theirs.
WITHOUT_GPUS = {"aurora"}


def srun(num_ranks, num_cores):
    return f"srun --nodes=2 --ntasks={2 * num_ranks} --ntasks-per-node={num_ranks} --cpus-per-task={num_cores} --threads-per-core=1 "


# {machine file: batch system, queue, directives of a job on two nodes, start of the command of its ranks}.
SITES = {
    "polaris": (
        "pbs", "debug", ["-l select=2:system=polaris", "-l place=scatter", "-l walltime=01:00:00", "-q debug"],
        "mpiexec -n 8 --ppn 4 --depth 8 --cpu-bind depth ",
    ),
    "aurora": (
        "pbs", "debug", ["-l select=2:system=aurora", "-l place=scatter", "-l walltime=01:00:00", "-q debug"],
        f"mpiexec -n 24 --ppn 12 --depth 8 --cpu-bind {AURORA_CORES} ",
    ),
    "perlmutter": ("slurm", "debug", NERSC, srun(4, 16)),
    "perlmutter-shifter": ("slurm", "debug", NERSC, srun(4, 16)),
    "jsc": ("slurm", "booster", [*JSC, "--cpus-per-task=12"], srun(4, 12)),
    "jureca": ("slurm", "dc-gpu", [*JSC[:-1], "--cpus-per-task=32", "--partition=dc-gpu"], srun(4, 32)),
    "jupiter": ("slurm", "booster", [*JSC, "--cpus-per-task=72"], srun(4, 72)),
    "frontier": (
        "slurm", "debug",
        ["--nodes=2", "--ntasks-per-node=8", "--cpus-per-task=7", "--threads-per-core=1", "--qos=debug", "--time=02:00:00",
         "--network=disable_rdzv_get"], srun(8, 7),
    ),
}  # fmt: skip


def test_every_site_is_here_with_its_source_and_that_it_was_never_tried():
    assert SITES.keys() == set(machine_files.names()) - {"local"}
    for name in SITES:
        head = (machine_files.FOLDER / f"{name}.toml").read_text().replace("\n# ", " ")
        assert "Tandem has never run there." in head
        assert re.search(r" From (docs|apps)\.[\w./-]+.* Read in [A-Z][a-z]+ 20\d\d\.", head), name
        assert read(name).device == ("cpu" if name in WITHOUT_GPUS else "cuda")


@pytest.mark.parametrize("name", SITES)
def test_a_job_and_its_ranks_ask_for_what_the_site_documents(name, monkeypatch):
    monkeypatch.setattr(job_scripts, "SETUP_FILES", ())
    system, queue, expected, command = SITES[name]
    machine = read(name)
    settings = settings_of(Matrix(), machine)
    jobs = plan(["ddp"], ["cnn"], [2 * machine.ranks_per_node], 9, machine.ranks_per_node, settings)
    matrix = Matrix(sizes=(2 * machine.ranks_per_node,), queue=queue, repeats=9, run=RunSettings())
    text = job_scripts.text(system, matrix, jobs, machine, Path("/here"))
    directives = [line.partition(" ")[2] for line in text.splitlines() if line.startswith(("#SBATCH ", "#PBS "))]
    assert [line for line in expected if line not in directives] == []
    assert any("gpu" in line for line in directives) == (system == "slurm" and machine.device == "cuda" and machine.gpu_request != "none")
    launcher = detect.choose(machine=machine, pretend=True)
    assert " ".join(start_of(jobs[0], launcher).argv()).startswith(command)


def test_a_rank_of_frontier_sees_only_the_gpu_beside_its_cores_and_uses_all_interfaces():
    machine = read("frontier")
    assert (machine.variables["NCCL_SOCKET_IFNAME"], "module load rccl-net-plugin" in machine.prologue) == ("hsn0,hsn1,hsn2,hsn3", True)
    jobs = plan(["ddp"], ["cnn"], [16], 1, 8, settings_of(Matrix(), machine))
    command = " ".join(start_of(jobs[0], detect.choose(machine=machine, pretend=True)).argv())
    assert " --gpus-per-task=1 --gpu-bind=closest bash -lc " in command


def test_one_agent_of_torchrun_has_the_cores_of_all_ranks_of_its_node():
    launcher = detect.choose("torchrun", machine=read("aurora"), pretend=True)
    launcher = launcher._replace(agent_launcher=("pals", "mpiexec"), first_node="x1")
    jobs = plan(["ddp"], ["cnn"], [24], 1, 12, settings_of(Matrix(), read("aurora")))
    assert start_of(jobs[0], launcher).argv()[:9] == ["mpiexec", "-n", "2", "--ppn", "1", "--depth", "96", "--cpu-bind", "depth"]


def test_a_matrix_in_a_container_that_is_not_here_dry_runs_without_a_network(monkeypatch, tmp_path):
    def unreachable(*_):
        raise OSError("Network is unreachable")

    for place, name in ((socket.socket, "connect"), (socket, "getaddrinfo"), (socket, "gethostbyname")):
        monkeypatch.setattr(place, name, unreachable)
    arguments = ("8", "--backends", "ddp", "--workloads", "cnn", "--machine-file", "perlmutter-shifter", "--dry-run", "--results", tmp_path)
    status, printed, error = run_module("launch.matrix", *arguments)
    assert status == 0, error
    assert f" {srun(4, 16)}" in printed
    assert " --gpu-bind=none shifter --image=nersc/pytorch:25.02.01 --module=gpu,nccl-plugin python3 -m frameworks.ddp " in printed
