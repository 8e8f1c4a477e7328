"""The programs of launch/: each can be started, and none is imported, so that what several need stands in a room."""

import ast
import functools

import pytest

from tests.support.running import ROOT

MODULES = [path for folder in ("common", "frameworks", "launch") for path in sorted((ROOT / folder).rglob("*.py"))]
PROGRAMS = sorted([*(ROOT / "launch").glob("[a-z]*.py"), *(ROOT / "launch").rglob("__main__.py")])


def dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@functools.cache
def imported_by(path):
    """The dotted names of the modules that a file imports, and of what it imports from them."""
    return set(_imported_by(path))


def _imported_by(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("program", PROGRAMS, ids=dotted)
def test_a_program_can_be_started_and_is_imported_by_nobody(program):
    assert program.name == "__main__.py" or '\nif __name__ == "__main__":\n' in program.read_text()
    assert [str(path) for path in MODULES if dotted(program) in imported_by(path)] == []
