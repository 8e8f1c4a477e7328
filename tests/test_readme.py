"""README: its commands run, its results are generated, and it leads to what a reader looks for. test_pages.py checks all references."""

import re
import shlex

import pytest

from common import backends
from launch.report.export import readme
from tests.support.forked import run_module
from tests.support.running import FEW_STEPS, ROOT, completed

README = (ROOT / "README.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line.strip()]
# What a command is run with besides, so that it takes less time: other tests train every workload with every backend at both sizes, and
# run all tests.
FEW_EPOCHS = ["--epochs", "1", "--no-stop-at-target", "--no-step-breakdown"]
SHORTER = {
    "launch/matrix.sh 1 2": [*FEW_EPOCHS, "--backends", "single", "--workloads", "cnn"],
    "launch/matrix.sh 1 2 --model frameworks/own_model/rings.py": [*FEW_EPOCHS, "--backends", "single"],
    "launch/matrix.sh 2 --backends ddp,deepspeed_zero@3 --workloads cnn --scaling strong --epochs 2": [*FEW_EPOCHS, "--backends", "ddp"],
    ".venv/bin/mpiexec -n 2 .venv/bin/python -m frameworks.ddp --epochs 2": FEW_EPOCHS,
    "tests/run.sh": ["--numprocesses", "0", "tests/common/test_metric.py"],
}


@pytest.mark.matrix
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_readme_run(checkout, command):
    words = shlex.split(command, comments=True)
    done = completed(
        "bash", "-c", shlex.join([*words, *SHORTER.get(shlex.join(words), [])]), cwd=checkout, variables=FEW_STEPS, seconds=1500
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_fits_two_screens_and_gives_the_two_commands_first():
    assert len(README.splitlines()) <= 80
    assert COMMANDS[:2] == ["launch/matrix.sh 1 2", "tests/run.sh"]


def test_the_readme_names_every_backend_of_the_default_matrix_that_communicates_and_its_page_every_one():
    distributed = [name for name in backends.chosen(None) if not backends.declaration_of(name).one_rank]
    assert [name for name in distributed if not re.search(rf"[` ]{name}[` ]", README)] == []
    assert [name for name in backends.declared() if f"| `{name}` |" not in (ROOT / "frameworks" / "README.md").read_text()] == []


def test_the_results_are_short_and_those_of_the_committed_records(committed):
    assert readme.with_results(README, readme.results(committed(readme.REFERENCE.name))) == README
    results = README.partition("## Results\n")[2].partition("**Which backend")[0]
    assert len([line for line in results.splitlines() if line and not line.startswith("<!--")]) <= 25


def test_the_screen_of_the_results_is_what_its_command_prints():
    pattern, screen = re.search(r"`launch\.compare (\S+)` prints it.*?```text\n(.*?)```", README, re.DOTALL).groups()
    assert run_module("launch.compare", *sorted(ROOT.glob(pattern)))[1].startswith(screen)
