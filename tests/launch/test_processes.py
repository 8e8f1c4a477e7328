"""A run's processes: when it is over, and that nothing of it is left."""

import time

import pytest

from common.process.watchdog import Hang, Place
from launch import processes, supervisor

HANG = Hang(0, Place(1, 20, 22), 9.0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.3)


def run(script, tmp_path, time_limit_seconds):
    """(Outcome, messages) of a shell script."""
    messages = []
    return processes.run(["sh", "-c", script], {}, "tested", tmp_path, time_limit_seconds, messages.append), messages


def test_a_run_that_hangs_is_ended_though_its_launcher_waits(tmp_path):
    begun = time.monotonic()
    outcome, messages = run(f"trap '' TERM; echo 'error: {HANG}'; while :; do sleep 0.1; done", tmp_path, 60)
    assert time.monotonic() - begun < 30
    assert (outcome.timed_out, outcome.returncode != 0, messages) == (False, True, [HANG])
    assert supervisor.processes_of("tested") == []


def test_a_run_beyond_its_time_limit_is_timed_out(tmp_path):
    outcome, messages = run("sleep 60", tmp_path, 0.5)
    assert (outcome.timed_out, messages) == (True, [])


def test_a_run_that_ends_is_over(tmp_path):
    outcome, _ = run("echo last; exit 3", tmp_path, 60)
    assert outcome == processes.Outcome(3, False, ["last"])
