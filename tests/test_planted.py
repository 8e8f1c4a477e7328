"""The planted faults still apply, and the tests that have to catch them are there. `python -m tests.planted` plants them."""

import subprocess
import sys

import pytest

from common.errors import UserError
from tests.planted import faults
from tests.support.running import ROOT

FAULTS = faults.load()
EXAMPLE = FAULTS[0]._replace(file="it.py", old="n + 1", new="n")


def test_there_are_at_least_40_each_with_a_name_of_its_own():
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names) >= 40


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_applies_to_one_line(fault):
    faults.planted(fault, (ROOT / fault.file).read_text())


# It imports every framework.
@pytest.mark.matrix
def test_the_tests_that_catch_the_faults_are_there():
    assert all(fault.tests for fault in FAULTS)
    named = {test for fault in FAULTS for test in fault.tests}
    collect = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-m", "", *named]
    done = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
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
    command = [sys.executable, "-m", "tests.planted", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_a_name_that_is_not_there_is_a_mistake():
    done = run("no-such-fault")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no planted fault 'no-such-fault'" in done.stderr


@pytest.mark.matrix
def test_a_planted_fault_is_caught():
    done = run(EXAMPLE.name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{EXAMPLE.name}: {FAULTS[0].file}: caught by {EXAMPLE.tests[0]}" in done.stdout
    assert "1 of 1 faults were caught" in done.stdout
