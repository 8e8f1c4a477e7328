"""What README and CONTRIBUTING say works and exists."""

import re
import shlex
import subprocess

import pytest

from launch import backends
from tests.running import ROOT, environ

README = (ROOT / "README.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line.strip()]


def trains(command):
    return command.startswith(("launch/matrix.sh", ".venv/bin/mpiexec")) and "--dry-run" not in command


@pytest.mark.matrix
@pytest.mark.parametrize("command", [pytest.param(command, marks=pytest.mark.long if trains(command) else ()) for command in COMMANDS])
def test_the_commands_of_the_readme_run(checkout, command):
    # These tests are what `tests/run.sh` runs: here it only has to find them.
    listing = ["--collect-only", "-q"] if command.startswith("tests/run.sh") else []
    done = subprocess.run(
        ["bash", "-c", shlex.join([*shlex.split(command, comments=True), *listing])],
        cwd=checkout, env=environ(), capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    if command == "launch/matrix.sh 1 2":
        assert "not reached" not in done.stdout
        assert "reached the target first" in done.stdout


def test_the_readme_gives_the_two_commands_first():
    assert COMMANDS[:2] == ["launch/matrix.sh 1 2", "tests/run.sh"]


@pytest.mark.parametrize(
    "document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "launch/README.md", "launch/report/README.md", "results/README.md"]
)
def test_every_file_that_is_named_exists(document):
    text = (ROOT / document).read_text()
    named = set(re.findall(r"`((?:common|frameworks|launch|tests|results)/[\w./]*\w/?)`", text)) - {"frameworks/NAME.py"}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_readme_names_every_backend():
    assert [name for name in backends.every() if f"`{name}`" not in README] == []
