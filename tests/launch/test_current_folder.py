"""What lies in the folder of a user is not run, whatever its name."""

import pytest

from tests.support.running import BIN, ROOT, completed, copied, make_light

# Modules of ours, of packages that we import, of Python, and of what Python imports on its own.
ONE_RUN = ("1", "--backends", "single", "--workloads", "cnn")
NAMES = ("launch", "common", "tyro", "numpy", "random", "runpy", "pip", "venv", "sitecustomize")


@pytest.fixture
def trap(tmp_path):
    """A folder whose modules leave a file if they are imported."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'run')!r}).touch()\nraise SystemExit(9)\n")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        (ROOT / "launch/matrix.sh", *ONE_RUN, "--print-jobs", "slurm"),
        # It starts PyTorch.
        pytest.param((ROOT / "launch/matrix.sh", *ONE_RUN, "--dry-run"), marks=pytest.mark.matrix),
        (ROOT / "launch/setup.sh", "--check"),
        (BIN / "python", ROOT / "launch/run_module.py", "pip", "--version"),
    ],
    ids=lambda command: f"{command[0].name} {command[-1]}",
)
def test_modules_in_the_current_folder_are_not_run(command, trap):
    done = completed(*command, cwd=trap)
    assert (done.returncode, (trap / "run").exists()) == (0, False), done.stderr


def test_a_deleted_current_folder_is_a_mistake_of_one_line(tmp_path):
    (tmp_path / "gone").mkdir()
    command = f'cd "$1" && rmdir "$1" && "{ROOT}/launch/matrix.sh" 1 --dry-run'
    done = completed("bash", "-c", command, "bash", tmp_path / "gone")
    message = "error: the current folder has been deleted; change to another one"
    assert (done.returncode, done.stdout, done.stderr.splitlines()[-1]) == (2, "", message)


def test_an_exported_cdpath_and_what_a_site_runs_in_every_bash_change_nothing(tmp_path):
    (tmp_path / "site").write_text("echo greeting; cd /")
    command = "launch/matrix.sh 1 --backends single --print-jobs slurm"
    plain, done = (
        completed("sh", "-c", command, variables=variables)
        for variables in ({}, {"CDPATH": f".:{ROOT}", "BASH_ENV": str(tmp_path / "site")})
    )
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr


@pytest.mark.matrix
def test_an_empty_part_of_a_sites_path_is_not_the_current_folder(trap, tmp_path_factory):
    """`export PYTHONPATH=$PYTHONPATH:/x`, where it was empty, names the current folder too."""
    checkout = copied(tmp_path_factory.mktemp("site"))
    (checkout / ".venv").unlink()
    make_light(checkout)
    for value in (":/x", "/x:", ":"):
        done = completed(checkout / "launch/matrix.sh", *ONE_RUN, "--print-jobs", "slurm", cwd=trap, variables={"PYTHONPATH": value})
        assert (done.returncode, (trap / "run").exists()) == (0, False), done.stderr
