"""The planted faults still apply, and the tests that have to catch them are there. `python -m tests.planted` plants them."""

from pathlib import Path

import pytest

from common.errors import UserError
from tests.planted import faults
from tests.support.running import BIN, completed

FAULTS = faults.load()
EXAMPLE = FAULTS[0]._replace(old="n + 1", new="n")


def test_there_are_at_least_40_each_with_a_name_of_its_own():
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names) >= 40


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_applies_to_one_line_and_names_tests(fault):
    faults.planted(fault, faults.product()[faults.place(fault, faults.product())])
    assert faults.node_ids(fault)


def test_the_line_of_a_fault_is_found_wherever_its_file_lies():
    texts = {Path("common/a.py"): "n + 1", Path("common/room/b.py"): "n", Path("launch/a.c"): ""}
    assert faults.place(EXAMPLE, texts) == Path("common/a.py")
    assert faults.place(EXAMPLE._replace(file="room/b.py", old="n"), texts) == Path("common/room/b.py")
    with pytest.raises(UserError, match=r"'n' stands in common/a.py, common/room/b.py; it must be in one"):
        faults.place(EXAMPLE._replace(old="n"), texts)
    with pytest.raises(UserError, match=r"'n \+ 1' is in no file b.py"):
        faults.place(EXAMPLE._replace(file="b.py"), texts)


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


def test_the_fault_is_all_that_is_changed():
    assert faults.planted(EXAMPLE, "def f(n):\n    return n + 1\n") == "def f(n):\n    return n\n"


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (EXAMPLE, "return n\n"),
        (EXAMPLE, "n + 1\nn + 1\n"),
        (EXAMPLE._replace(new="n + 1"), "n + 1\n"),
        (EXAMPLE._replace(new="n\n"), "n + 1\n"),
        (EXAMPLE._replace(old="n\nm", new="k\nl"), "n\nm\n"),
    ],
)
def test_a_fault_that_does_not_apply_is_an_error(fault, text):
    with pytest.raises(UserError, match=f"{fault.name} does not apply"):
        faults.planted(fault, text)


def run(*arguments):
    return completed(BIN / "python", "-m", "tests.planted", *arguments)


def test_a_name_that_is_not_there_is_a_mistake():
    done = run("no-such-fault")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no planted fault 'no-such-fault'" in done.stderr


@pytest.mark.matrix
def test_a_planted_fault_is_caught():
    done = run(EXAMPLE.name)
    assert done.returncode == 0, done.stdout + done.stderr
    (test,) = faults.node_ids(EXAMPLE)
    assert f"{EXAMPLE.name}: {faults.place(FAULTS[0], faults.product())}: caught by {test}" in done.stdout
    assert "1 of 1 faults were caught" in done.stdout
