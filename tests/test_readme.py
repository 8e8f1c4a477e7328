"""README: its commands run, its table is generated, and it leads to what a reader looks for. test_pages.py checks all references."""

import re
import shlex

import pytest

from common import backends
from launch.report.export import readme
from launch.report.report import report_of
from tests.support.running import ROOT, completed

README = (ROOT / "README.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line.strip()]
# What a command is run with besides, so that it takes less time: other tests train every workload with every backend, and run all tests.
FEW_STEPS = ["--epochs", "1", "--no-stop-at-target"]
SHORTER = {
    "launch/matrix.sh 1 2": [*FEW_STEPS, "--backends", "single,ddp", "--workloads", "cnn"],
    "launch/matrix.sh 1 2 --model frameworks/own_model/rings.py": [*FEW_STEPS, "--backends", "single,ddp"],
    "launch/matrix.sh 2 --backends ddp,deepspeed_zero@3 --workloads cnn --scaling strong --epochs 2": FEW_STEPS[2:],
    "tests/run.sh": ["--numprocesses", "0", "tests/common/test_units.py"],
}


@pytest.mark.matrix
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_readme_run(checkout, command):
    words = shlex.split(command, comments=True)
    done = completed("bash", "-c", shlex.join([*words, *SHORTER.get(shlex.join(words), [])]), cwd=checkout, seconds=1500)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_fits_two_screens_and_gives_the_two_commands_first():
    assert len(README.splitlines()) <= 80
    assert COMMANDS[:2] == ["launch/matrix.sh 1 2", "tests/run.sh"]


def test_the_readme_names_every_backend_of_the_default_matrix_that_communicates_and_its_page_every_one():
    distributed = [name for name in backends.chosen(None) if not backends.declaration_of(name).one_rank]
    assert [name for name in distributed if f"`{name}`" not in README] == []
    assert [name for name in backends.declared() if f"| `{name}` |" not in (ROOT / "frameworks" / "README.md").read_text()] == []


def test_a_key_of_the_record_and_a_new_backend_are_two_hops_away():
    assert "communication_exposed_seconds" in README
    assert "](results/README.md)" in README
    assert "](schema.json)" in (ROOT / "results" / "README.md").read_text()
    assert '"communication_exposed_seconds"' in (ROOT / "results" / "schema.json").read_text()
    assert "FSDP" in README
    assert "## Add a backend" in (ROOT / "frameworks" / "README.md").read_text()


def test_the_readme_names_a_generation_of_processors_only_where_a_note_has_its_family():
    notes = (ROOT / "results" / "README.md").read_text()
    assert [name for name in re.findall(r"\bZen \d", README) if f"{name} (family" not in notes] == []


def test_the_seeds_of_the_results_are_those_of_the_committed_records(committed):
    seeds = [{record.settings.seed for record in committed(path.name)} for path in (readme.SECOND_MACHINE, readme.REFERENCE)]
    assert "`zen4-default` (Zen 4, {} seeds) and `zen5-default` (Zen 5, {} seeds)".format(*map(len, seeds)) in README
    assert f" seeds {min(seeds[1])} to {max(seeds[1])}," in " ".join((ROOT / "results" / "README.md").read_text().split())


@pytest.fixture(scope="module")
def tables(committed):
    return readme.table(report_of([record for path in (readme.SECOND_MACHINE, readme.REFERENCE) for record in committed(path.name)]))


def test_the_table_of_results_is_that_of_the_committed_records_and_has_every_machine_beside_the_other(tables):
    assert readme.with_table(README, tables) == README
    parts, backends = tables.split("\n\n")
    heads = [[cell.strip() for cell in table.splitlines()[0].split("|")[1:-1]] for table in (parts, backends)]
    machines = ["cnn: zen4-default", "cnn: zen5-default", "transformer: zen4-default", "transformer: zen5-default"]
    # What is inside PyTorch leads.
    assert heads == [["seconds per epoch", *machines], ["backend", *machines, "MiB per rank"]]
    assert parts.splitlines()[2].split("|")[1].strip() == "gloo over mpi (transport)"


def test_by_how_much_the_ratios_of_the_two_machines_differ(tables):
    parts, _ = tables.split("\n\n")
    rows = [[cell.split()[0] for cell in line.split("|")[1:-1]] for line in parts.splitlines()[2:]]
    largest = {
        name: max(abs(float(row[column]) - float(row[column + 1])) for row in rows for column in (1, 3) if ("torch" in row[0]) == across)
        for name, across in (("inside", False), ("across", True))
    }
    sentence = "Inside PyTorch the ratios of the two machines differ by {inside:.2f} at most. Across frameworks one differs by {across:.2f}"
    assert sentence.format(**largest) in README
