"""Which runs failed, and why."""

from tests.support.answers import lines, section
from tests.support.made_records import ended, made, not_reached


def test_every_unsuccessful_run_is_listed_with_its_reason():
    records = [
        made(), ended("failed", num_ranks=2), ended("timeout", num_ranks=3), ended("started", num_ranks=4), not_reached(num_ranks=5),
        made(num_ranks=6, time_to_solution_seconds=None, resumed_after_epochs=2),
        not_reached(num_ranks=7, samples_per_second=None, losses=[], resumed_after_epochs=2) | {"accuracy": None},
        made(num_ranks=8, launcher_error="ended with exit status 9"), ended("diverged", num_ranks=9),
    ]  # fmt: skip
    assert [(row["ranks"], row["status"], row["reason"]) for row in lines(records, "failed")] == [
        (2, "failed", "it broke"),
        (3, "timed out", "it broke"),
        (4, "unfinished", "still running, or killed before its record was complete"),
        (5, "target not reached", "accuracy 0.9000 after 2 epochs; the target is 0.94"),
        (6, "no time to solution", "resumed from a checkpoint after 2 epochs"),
        (7, "target not reached", "resumed from a checkpoint after 2 epochs, with no epoch left to train"),
        (8, "completed; its launcher failed", "ended with exit status 9"),
        (9, "diverged", "it broke"),
    ]
    assert section(records, "failed").sentences == [
        "Of 9 files: 1 failed, 1 timed out, 1 unfinished, 2 target not reached, 1 no time to solution, 1 completed; its launcher failed, "
        "1 diverged."
    ]
