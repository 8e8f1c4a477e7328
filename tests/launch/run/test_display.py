"""What a matrix shows: plain lines without a terminal, a live line with one."""

import io

import pytest
from rich.console import Console

from common.config import Settings
from common.progress import Progress
from launch.run import display
from launch.run.display import Display, describe, outcome
from launch.run.plan import Job
from tests.support.made_records import made, typed

JOB = Job("ddp", 2, 2, Settings())
HALF = Progress(3, 4, 11, 22, 0.25, 0.875, 50.0)


def shown(terminal):
    """What is shown of a run that has begun and made progress."""
    stream = io.StringIO()
    with Display(5, Console(file=stream, force_terminal=terminal, width=200)) as live:
        live.begin(1, JOB)
        live.progress(1, JOB, HALF)
        if terminal:
            live.live.refresh()
    return stream.getvalue()


def test_progress_in_words():
    assert describe(HALF) == "epoch 3/4, step 11/22, loss 0.2500, accuracy 0.8750, at most 30 s left"
    assert describe(Progress(1, 4, 0, 22, None, None, 0.0)) == "epoch 1/4, step 0/22"
    assert describe(Progress(1, 4, 1, 22, 2.3, None, 0.3)) == "epoch 1/4, step 1/22, loss 2.3000"
    assert describe(Progress(4, 4, 22, 22, 0.1, 0.9, 70.0)) == "epoch 4/4, step 22/22, loss 0.1000, accuracy 0.9000"


def test_without_a_terminal_the_lines_are_plain_and_few(monkeypatch):
    begun = "[1/5] cnn ddp 2 ranks: starting\n"
    assert shown(terminal=False) == begun
    monkeypatch.setattr(display, "PLAIN_INTERVAL_SECONDS", 0.0)
    assert shown(terminal=False) == f"{begun}[1/5] cnn ddp 2 ranks: {describe(HALF)}\n"


def test_on_a_terminal_the_line_is_live():
    assert describe(HALF) in shown(terminal=True)


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ({"status": "failed", "error": "it broke"}, "failed: it broke"),
        ({"status": "timeout", "error": "too long"}, "timeout: too long"),
        ({"status": "ok", "launcher_error": None, "reached": True, "target": 0.97, "time_to_solution_seconds": 3.456, "accuracy": 0.975},
         "reached 0.97 in 3.46 s (accuracy 0.9750)"),
        ({"status": "ok", "launcher_error": "exit status 9", "reached": False, "target": 0.97, "accuracy": 0.5, "accuracies": [0.4, 0.5],
          "time_to_solution_seconds": None},
         "not reached 0.97 (accuracy 0.5000 after 2 epochs); then its launcher failed: exit status 9"),
    ],
)  # fmt: skip
def test_how_a_run_ended(record, line):
    assert outcome(typed([made() | record])[0]) == line
