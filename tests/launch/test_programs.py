"""The programs of launch/: each can be started, none is imported, since what several need is in a room, and what they print is quoted."""

import grimp
import pytest

from launch.matrix import links_to
from tests.support.running import ROOT, completed

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
