"""The commands in launch/README.md are those of a dry run, and those of sites print jobs; shell scripts pass shellcheck."""

import dataclasses
import re

import pytest

from launch.launchers import machine_files
from launch.launchers.commands import LAUNCHERS
from launch.launchers.machine_files import Machine
from tests.support.forked import run_module
from tests.support.running import BIN, ROOT, completed

PAGE = (ROOT / "launch" / "README.md").read_text()
BLOCKS = re.findall(r"^```\nlaunch/matrix\.sh 8 (.*)\n(.*)\n```$", PAGE, re.MULTILINE)
OF_SITES = re.findall(r"^  launch/matrix\.sh (.* --print-jobs (\w+)) \| bash -s -- (.*)$", PAGE, re.MULTILINE)
SCRIPTS = [ROOT / "launch" / "matrix.sh", ROOT / "launch" / "setup.sh", *(ROOT / "tests").glob("*.sh")]


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
