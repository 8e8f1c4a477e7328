"""How the end of a run's processes is told."""

import pytest

from launch.processes import Outcome
from launch.runner import ending_of, typed


@pytest.mark.parametrize(
    ("outcome", "ending"),
    [
        (Outcome(0, False, ["record: there"]), ("ok", None)),
        (Outcome(-15, True, ["error: rank 0: it was ended"]), ("timeout", "ended after the time limit of 30 s")),
        (Outcome(9, False, ["error: rank 1: the cause", "error: rank 0: what came of it"]), ("failed", "rank 1: the cause")),
        (Outcome(9, False, ["Killed"]), ("failed", "ended with exit status 9")),
    ],
)
def test_the_first_error_is_the_cause(outcome, ending):
    assert ending_of(outcome, 30.0) == ending


def test_a_command_is_quoted_as_a_shell_needs_it():
    assert typed(["run", "--data-dir", "it's here"], {"OMP_NUM_THREADS": "1"}) == """OMP_NUM_THREADS=1 run --data-dir 'it'"'"'s here'"""
