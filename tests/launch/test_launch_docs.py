"""The commands in launch/README.md are those of a dry run; the job scripts run."""

import re

import pytest

from launch.launchers.commands import LAUNCHERS
from launch.launchers.machine_files import KINDS
from launch.run import available
from tests.support.forked import run_module
from tests.support.running import BIN, ROOT, completed

PAGE = (ROOT / "launch" / "README.md").read_text()
BLOCKS = re.findall(r"^```\nlaunch/matrix\.sh 8 (.*)\n(.*)\n```$", PAGE, re.MULTILINE)
JOBS = sorted((ROOT / "launch" / "launchers" / "jobs").iterdir())
SCRIPTS = [*JOBS, ROOT / "launch" / "aprun", ROOT / "launch" / "matrix.sh", ROOT / "launch" / "setup.sh", *(ROOT / "tests").glob("*.sh")]


def test_every_launcher_is_on_the_page():
    assert {arguments.split()[1] for arguments, _ in BLOCKS} == LAUNCHERS.keys()


@pytest.mark.parametrize(("arguments", "command"), BLOCKS, ids=lambda text: text.split()[1])
def test_the_page_shows_what_a_dry_run_prints(arguments, command, tmp_path, monkeypatch):
    # Importing the backend takes seconds.
    monkeypatch.setattr(available, "settled", lambda jobs, *_: (jobs, {}))
    (tmp_path / "nodes").write_text("node1\nnode2\n")
    dry = ["8", "--ranks-per-node", "4", "--backends", "ddp", "--workloads", "cnn", "--machine", "here", "--dry-run"]
    status, printed, error = run_module("launch.matrix", *dry, *arguments.replace("nodes", str(tmp_path / "nodes")).split())
    assert status == 0, error
    assert printed.replace(str(tmp_path / "nodes"), "nodes").partition(" --machine here")[0] == command


def test_every_key_of_a_machine_file_is_on_the_page():
    assert [key.strip("[]") for key in re.findall(r"^\| `(.*?)` \|", PAGE, re.MULTILINE)] == list(KINDS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_pass_shellcheck(script):
    done = completed(BIN / "shellcheck", "--shell=bash", script)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", JOBS, ids=lambda path: path.name)
def test_a_job_script_names_nobody_and_is_read_by_its_batch_system(script):
    text = script.read_text()
    assert not re.search(r"/(home|users|p|lus|eagle|gpfs)/\w", text)
    assert re.search(r"^#(PBS|SBATCH) ", text, re.MULTILINE)


# test_slurm.py submits the one for Slurm.
@pytest.mark.matrix
@pytest.mark.parametrize("script", JOBS, ids=lambda path: path.name)
def test_a_job_script_starts_the_matrix_with_its_sizes_and_arguments(script):
    variables = {"TANDEM_SIZES": "1 2", "TANDEM_MACHINE_FILE": "local"}
    done = completed(script, "--backends", "ddp", "--workloads", "cnn", "--dry-run", variables=variables)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"mpiexec -n (\d) .* -m frameworks\.(\w+)", done.stdout) == [("1", "ddp"), ("2", "ddp")]
