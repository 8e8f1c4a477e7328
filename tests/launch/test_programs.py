"""The programs of launch/: each can be started, none is imported, since what several need is in a room, and what they print is quoted."""

import re

import grimp
import pytest

from launch.matrix import links_to
from tests.support.running import ROOT, completed, copied, make_light

PROGRAMS = sorted([*(ROOT / "launch").glob("[a-z]*.py"), *(ROOT / "launch").rglob("__main__.py")])
IMPORTS = grimp.build_graph("common", "frameworks", "launch", cache_dir=None)


def dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("program", PROGRAMS, ids=dotted)
def test_a_program_can_be_started_and_is_imported_by_nobody(program):
    assert program.name == "__main__.py" or '\nif __name__ == "__main__":\n' in program.read_text()
    assert IMPORTS.find_modules_that_directly_import(dotted(program)) == set()


def test_the_command_that_prints_all_tables_can_be_pasted_where_the_folder_has_spaces(tmp_path):
    page = tmp_path / "my results" / "it.html"
    page.parent.mkdir()
    page.with_name("it-a.json").touch()
    (tables,) = links_to(page)
    done = completed("bash", "-c", f"printf '%s\\n' {tables.removeprefix('all tables: ')}")
    assert done.stdout.splitlines()[-2:] == [str(page.with_name("it-a.json")), "--full"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A checkout below a folder with blanks, whose environment is beside a site's Python."""
    checkout = copied(tmp_path_factory.mktemp("it's a site "))
    (checkout / ".venv").unlink()
    make_light(checkout)
    return checkout


@pytest.mark.parametrize("module", ["launch.compare", "launch.memory"])
def test_the_command_that_a_program_prints_of_itself_can_be_pasted(module, site):
    printed = completed(site / ".light" / "bin" / "python", "-m", module, "--help", cwd=site).stdout
    command = re.match(r"usage: (.+? -m [\w.]+)", printed)[1]
    assert completed("bash", "-c", f"{command} --help", cwd=site).stdout == printed


# A matrix says so which runs are left, and how its machine is checked.
LEFT = """import sys
from common.config import Settings
from launch.run.plan import Job
from launch.run.session import describe_left
sys.argv[1:] = ["1", "--results", "it's a result", "--print-jobs", "slurm"]
print(describe_left([Job("ddp", 1, 1, Settings(run_id="run"))]))
"""


@pytest.mark.parametrize(("folder", "program"), [("..", "tandem/launch/matrix.sh "), ("/usr", "'/")])
def test_the_command_for_what_is_left_can_be_pasted_where_the_matrix_was_started(folder, program, site):
    python, variables = site / ".light" / "bin" / "python", {"PYTHONPATH": str(site)}
    command = completed(python, "-c", LEFT, cwd=site / folder, variables=variables).stdout.partition("another one: ")[2]
    assert command.startswith(program)
    done = completed("bash", "-c", command, cwd=site / folder)
    assert (done.returncode, "it'\"'\"'s a result" in done.stdout) == (0, True), done.stderr
