"""The lesson of the deadlock: one order of the calls hangs with large messages, and what is said of it is what the runs show."""

import pytest

from common.process.watchdog import Hang, Place
from launch.lesson import pipeline
from launch.lesson.pipeline import CASES
from launch.run.processes import Outcome
from tests.support.forked import run_module
from tests.support.running import BIN, completed

HANGS = [Hang(1, Place(1, 1, 4), 5.0), Hang(0, Place(1, 2, 4), 5.0)]


def results(hung=(False, True, False, False), returncode=0):
    """What the cases show where those of `hung` hang and the others end with an exit status."""
    return [
        (case, Outcome(1 if hangs else returncode, False, ["it broke"]), HANGS if hangs else [])
        for case, hangs in zip(CASES, hung, strict=True)
    ]


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        (results(), "two blocking sends that wait for each other's receive deadlock"),
        (results([False] * 4), "nothing hung"),
        (results([True] * 4), "other cases hung than those expected"),
        (results(returncode=1), "a case failed for another reason"),
    ],
)
def test_the_sentence_says_what_the_cases_show(cases, message):
    assert message in pipeline.conclusion(cases)


def test_a_row_has_where_each_rank_hung_or_how_the_case_ended():
    rows = [pipeline.row(*case) for case in results()]
    assert [row[1:] for row in rows[:2]] == [
        ["1 KiB", "exchanged"],
        ["16 MiB", "rank 0 hung in step 2/4 of epoch 1; rank 1 hung in step 1/4 of epoch 1"],
    ]
    assert pipeline.row(*results(returncode=1)[0])[2] == "failed: it broke"


@pytest.mark.matrix
def test_blocking_sends_of_large_messages_hang_and_the_cures_do_not():
    done = completed(BIN / "python", "-m", "launch.lessons", "pipeline", "--launcher", "mpich")
    assert done.returncode == 0, done.stdout + done.stderr
    ended = [line.split("\u2502")[3].strip() for line in done.stdout.splitlines() if line.count("\u2502") == 4]
    assert ended[1] == "rank 0 hung in step 1/4 of epoch 1; rank 1 hung in step 1/4 of epoch 1"
    assert [ended[0], *ended[2:]] == ["exchanged"] * 3
    assert done.stdout.splitlines()[-1].startswith("two blocking sends")


def test_under_torchrun_there_is_no_mpi():
    status, _, error = run_module("launch.lessons", "pipeline", "--launcher", "torchrun")
    assert (status, error) == (2, "error: the lesson exchanges over MPI, which torchrun does not provide; use an MPI launcher\n")
