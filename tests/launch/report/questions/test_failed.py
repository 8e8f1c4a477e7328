"""Which runs failed, and why."""

import os
import socket
import subprocess

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
        (5, "target not reached", "accuracy 0.9000, loss 0.5 after 2 epochs; the target is 0.94"),
        (6, "no time to solution", "resumed from a checkpoint after 2 epochs"),
        (7, "target not reached", "resumed from a checkpoint after 2 epochs, with no epoch left to train"),
        (8, "completed; its launcher failed", "ended with exit status 9"),
        (9, "diverged", "it broke"),
    ]
    assert section(records, "failed").sentences == [
        "Of 9 files: 1 failed, 1 timed out, 1 unfinished, 2 target not reached, 1 no time to solution, 1 completed; its launcher failed, "
        "1 diverged."
    ]


def test_a_run_that_was_killed_on_this_node_is_not_taken_for_one_that_runs():
    ended_process = subprocess.Popen(["true"])
    ended_process.wait()

    def started(num_ranks, pid, host):
        return ended("started", num_ranks=num_ranks, pids_by_rank=[pid] * num_ranks, environment=made()["environment"] | {"host": host})

    here = socket.gethostname()
    records = [started(2, ended_process.pid, here), started(3, os.getpid(), here), started(4, ended_process.pid, f"not-{here}")]
    killed = f"rank 0 was process {ended_process.pid} of this node, which does not run any more"
    running = ("unfinished", "still running, or killed before its record was complete")
    assert [(row["status"], row["reason"]) for row in lines(records, "failed")] == [("ended without a result", killed), running, running]
