"""The programs of launch/: each can be started, and none is imported, so that what several need stands in a room."""

import grimp
import pytest

from tests.support.running import ROOT

PROGRAMS = sorted([*(ROOT / "launch").glob("[a-z]*.py"), *(ROOT / "launch").rglob("__main__.py")])
IMPORTS = grimp.build_graph("common", "frameworks", "launch", cache_dir=None)


def dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("program", PROGRAMS, ids=dotted)
def test_a_program_can_be_started_and_is_imported_by_nobody(program):
    assert program.name == "__main__.py" or '\nif __name__ == "__main__":\n' in program.read_text()
    assert IMPORTS.find_modules_that_directly_import(dotted(program)) == set()
