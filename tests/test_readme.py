"""The commands of the README work, and it leads to what a reader looks for. test_pages.py checks what all pages point to."""

import re
import shlex

import pytest

from common import backends
from tests.support.running import ROOT, completed

README = (ROOT / "README.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line.strip()]


# What a command is run with besides, so that it takes less time: other tests train every workload with every backend, and a test of
# the tests has only to find them.
SHORTER = {
    "launch/matrix.sh 1 2": ["--epochs", "1", "--backends", "single,ddp", "--workloads", "cnn"],
    "tests/run.sh": ["--collect-only", "-q"],
}


@pytest.mark.matrix
@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_readme_run(checkout, command):
    words = shlex.split(command, comments=True)
    done = completed("bash", "-c", shlex.join([*words, *SHORTER.get(shlex.join(words), [])]), cwd=checkout, seconds=1500)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_is_short():
    assert (len(README.splitlines()) <= 120, len(README.split()) <= 1200) == (True, True)


def test_the_readme_gives_the_two_commands_first():
    assert COMMANDS[:2] == ["launch/matrix.sh 1 2", "tests/run.sh"]


def test_the_readme_names_every_backend_of_the_default_matrix_and_its_page_every_one():
    assert [name for name in backends.chosen(None) if f"`{name}`" not in README] == []
    assert [name for name in backends.declared() if f"| `{name}` |" not in (ROOT / "frameworks" / "README.md").read_text()] == []


def test_a_key_of_the_record_and_a_new_backend_are_two_hops_away():
    assert "communication_exposed_seconds" in README
    assert "communication_exposed_seconds`" in (ROOT / "results" / "README.md").read_text()
    assert "FSDP" in README
    assert "## Add a backend" in (ROOT / "frameworks" / "README.md").read_text()
