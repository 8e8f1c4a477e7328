"""The commands in launch/README.md are those of a dry run; those of launch/SITES.md print jobs, or run in the image or the notebook
that they are for; shell scripts pass shellcheck."""

import dataclasses
import re

import pytest

from launch.launchers import machine_files
from launch.launchers.commands import LAUNCHERS
from launch.launchers.machine_files import Machine
from tests.support.forked import run_module
from tests.support.running import BIN, FEW_STEPS, ROOT, completed, copied

PAGE = (ROOT / "launch" / "README.md").read_text()
BLOCKS = re.findall(r"^```\nlaunch/matrix\.sh 8 (.*)\n(.*)\n```$", PAGE, re.MULTILINE)
SITES = (ROOT / "launch" / "SITES.md").read_text()
OF_SITES = re.findall(r"^  launch/matrix\.sh (.* --print-jobs (\w+)) \| bash -s -- (.*)$", SITES, re.MULTILINE)
CONTAINERS = re.findall(r"^(docker|podman|apptainer|enroot) (.* bash -c '.*)$", SITES, re.MULTILINE)
CELLS = re.findall(r"^!(.*)$", SITES, re.MULTILINE)
SCRIPTS = [*(ROOT / "launch" / name for name in ("audit", "matrix.sh", "setup.sh")), *(ROOT / "tests").glob("*.sh")]


def test_every_launcher_is_on_the_page_and_some_with_their_commands():
    assert [name for name in LAUNCHERS if f"\n| {name} |" not in PAGE] == []
    assert len(BLOCKS) == 2


@pytest.mark.parametrize(("arguments", "command"), BLOCKS, ids=lambda text: text.split()[1])
def test_the_page_shows_what_a_dry_run_prints(arguments, command, tmp_path):
    (tmp_path / "nodes").write_text("node1\nnode2\n")
    dry = ["8", "--ranks-per-node", "4", "--backends", "ddp", "--workloads", "cnn", "--machine", "here", "--dry-run"]
    status, printed, error = run_module("launch.matrix", *dry, *arguments.replace("nodes", str(tmp_path / "nodes")).split())
    assert status == 0, error
    assert printed.replace(str(tmp_path / "nodes"), "nodes").partition(" --machine here")[0] == command


def test_every_key_of_a_machine_file_is_on_the_page():
    assert [key.strip("[]") for key in re.findall(r"^\| `(.*?)` \|", PAGE, re.MULTILINE)] == [
        field.name for field in dataclasses.fields(Machine)
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_pass_shellcheck(script):
    done = completed(BIN / "shellcheck", "--shell=bash", script)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("arguments", "system", "options"), OF_SITES, ids=lambda text: text.split()[-1])
def test_the_commands_of_sites_print_jobs_of_whole_nodes(arguments, system, options, tmp_path):
    status, printed, error = run_module("launch.matrix", *arguments.split(), "--results", tmp_path)
    assert (status, list(tmp_path.iterdir())) == (0, []), error
    machine = machine_files.read(re.search(r"--machine-file (\w+)|$", arguments)[1] or "local")
    of_all_ranks = printed.split("END_OF_JOB")[-2]
    gpus = {"gres": "--gres=gpu:4\n", "gpus-per-node": "--gpus-per-node=4\n"}[machine.gpu_request]
    directives = "--nodes=2\n#SBATCH --ntasks-per-node=4\n" if system == "slurm" else "select=2:system=polaris\n"
    assert directives in of_all_ranks
    assert (gpus in of_all_ranks) is (system == "slurm" and machine.device == "cuda")
    assert "PROJECT" in options


def test_the_jobs_of_aws_have_the_machine_file_of_the_page(tmp_path):
    (tmp_path / "efa.toml").write_text(re.search(r"```toml\n(.*?)```", SITES, re.DOTALL)[1])
    (arguments,) = re.findall(r"^launch/matrix\.sh (.*efa\.toml.*?) \|", SITES, re.MULTILINE)
    status, printed, error = run_module("launch.matrix", *arguments.replace("efa.toml", f"{tmp_path}/efa.toml").split())
    assert status == 0, error
    assert "--nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --cpus-per-task=8\n" in printed
    assert set(machine_files.read(f"{tmp_path}/efa.toml").variables) == {"FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "NCCL_SOCKET_IFNAME"}


# It runs what its container would.
CONTAINER = '#!/bin/sh\nwhile [ "$1" != bash ]; do shift; done\nexec "$@"\n'


@pytest.mark.matrix
def test_what_a_container_and_a_notebook_run_sets_itself_up_and_trains(tmp_path):
    """Of a checkout that nobody has set up, where `python3` is one that has PyTorch."""
    checkout = copied(tmp_path)
    (checkout / ".venv").unlink()
    for name in ("docker", "enroot"):
        (tmp_path / name).write_text(CONTAINER)
        (tmp_path / name).chmod(0o755)
    variables = FEW_STEPS | {"PATH": f"{tmp_path}:{BIN}:/usr/bin:/bin", "PIP_NO_INDEX": "1"}
    programs = dict(CONTAINERS)
    assert programs.keys() == {"docker", "podman", "apptainer", "enroot"}
    of_docker, *others = (programs[name].rpartition(" bash -c ")[2] for name in ("docker", "podman", "apptainer"))
    assert others == [of_docker] * 2
    clone, *cells = CELLS
    assert clone == "git clone REPOSITORY tandem"
    in_container = [f"cd tandem && {name} {programs[name]}" for name in ("docker", "enroot")]
    dry_runs = [command.replace("matrix.sh 1 2", "matrix.sh 1 2 --dry-run") for command in in_container]
    for command in (*dry_runs, cells[0], f"{cells[1]} --epochs 1 --no-stop-at-target --no-step-breakdown"):
        done = completed("bash", "-c", command, cwd=tmp_path, variables=variables)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (".light/bin/python -m frameworks.ddp " in done.stdout) == ("--dry-run" in command)
    assert f"all tables: {checkout}/.light/bin/python -m launch.compare " in done.stdout
