"""The planted faults still apply, and the tests that have to catch them are there. `python -m tests.planted` plants them."""

from pathlib import Path

import pytest

from common.errors import UserError
from tests.planted import faults
from tests.support.mistakes import expect_refused
from tests.support.running import BIN, completed

FAULTS = faults.load()
EXAMPLE = FAULTS[0]._replace(old="n + 1", new="n")
FILE, ROOM_FILE = Path("common/a.py"), Path("common/room/b.py")


def test_there_are_at_least_40_each_with_a_name_of_its_own():
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names) >= 40


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_applies_to_one_line_and_names_tests(fault):
    assert faults.planted(fault, faults.product())
    assert faults.node_ids(fault)


@pytest.mark.parametrize(
    ("fault", "path", "changed"),
    [
        (EXAMPLE, FILE, "def f(n):\n    return n\n"),
        (EXAMPLE._replace(file="room/b.py", old="n", new="m"), ROOM_FILE, "m"),
    ],
)
def test_the_line_of_a_fault_is_found_wherever_its_file_lies_and_is_all_that_is_changed(fault, path, changed):
    texts = {FILE: "def f(n):\n    return n + 1\n", ROOM_FILE: "n", Path("launch/a.c"): ""}
    assert faults.planted(fault, texts) == (path, changed)


@pytest.mark.parametrize(
    ("changes", "text", "message"),
    [
        ({}, "return n\n", r"'n \+ 1' must stand once in \*; it stands nowhere"),
        ({"file": "b.py"}, "n + 1", "must stand once in b.py; it stands nowhere"),
        ({}, "n + 1\nn + 1\n", "it stands 2 times in common/a.py"),
        ({"old": "n"}, "n", "it stands 1 times in common/a.py, 1 times in common/room/b.py"),
        ({"new": "n + 1"}, "n + 1\n", "it changes other than one line"),
        ({"new": "n\n"}, "n + 1\n", "it changes other than one line"),
        ({"old": "n\nm", "new": "k\nl"}, "n\nm\n", "it changes other than one line"),
    ],
)
def test_a_fault_that_does_not_apply_is_an_error(changes, text, message):
    with pytest.raises(UserError, match=f"{EXAMPLE.name} does not apply: .*{message}"):
        faults.planted(EXAMPLE._replace(**changes), {FILE: text, ROOM_FILE: "n"})


def test_a_test_is_found_by_the_end_of_its_path():
    assert faults.node_ids(EXAMPLE._replace(tests=["test_planted.py::test_x", "run/test_quiet.py"])) == [
        "tests/test_planted.py::test_x", "tests/launch/run/test_quiet.py",
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"test_gone.py, and there is none"):
        faults.node_ids(EXAMPLE._replace(tests=["test_gone.py"]))
    with pytest.raises(UserError, match=r"test_quiet.py, and there are tests/launch/\S*test_quiet.py, tests/launch/\S*test_quiet.py"):
        faults.node_ids(EXAMPLE._replace(tests=["test_quiet.py"]))


# It imports every framework.
@pytest.mark.matrix
def test_the_tests_that_catch_the_faults_are_there():
    named = {test for fault in FAULTS for test in faults.node_ids(fault)}
    done = completed(BIN / "python", "-m", "pytest", "--collect-only", "--quiet", "-m", "", *named)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_name_that_is_not_there_is_a_mistake():
    expect_refused("no planted fault 'no-such-fault'", "tests.planted", "no-such-fault")


@pytest.mark.matrix
def test_a_planted_fault_is_caught():
    done = completed(BIN / "python", "-m", "tests.planted", EXAMPLE.name)
    assert done.returncode == 0, done.stdout + done.stderr
    path, _ = faults.planted(FAULTS[0], faults.product())
    (test,) = faults.node_ids(EXAMPLE)
    assert f"{EXAMPLE.name}: {path}: caught by {test}" in done.stdout
    assert "1 of 1 faults were caught" in done.stdout
