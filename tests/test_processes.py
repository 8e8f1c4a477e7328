"""A run's processes: when it is over, and that nothing of it is left."""

import time

import pytest

from common.stalls import Place, Standstill
from launch import processes

STANDSTILL = Standstill(0, Place(1, 20, 22), 9.0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.3)


def run(script, tmp_path, time_limit_seconds):
    """(Outcome, what was heard) of a shell script."""
    heard = []
    return processes.run(["sh", "-c", script], {}, "tested", tmp_path, time_limit_seconds, heard.append), heard


def test_a_run_that_stands_still_is_ended_though_its_launcher_waits(tmp_path):
    begun = time.monotonic()
    outcome, heard = run(f"trap '' TERM; echo 'error: {STANDSTILL}'; while :; do sleep 0.1; done", tmp_path, 60)
    assert time.monotonic() - begun < 30
    assert (outcome.timed_out, outcome.returncode != 0, heard) == (False, True, [STANDSTILL])
    assert processes.processes_of("tested") == []


def test_a_run_that_goes_on_for_too_long_is_timed_out(tmp_path):
    outcome, heard = run("sleep 60", tmp_path, 0.5)
    assert (outcome.timed_out, heard) == (True, [])


def test_a_run_that_ends_is_over(tmp_path):
    outcome, _ = run("echo last; exit 3", tmp_path, 60)
    assert outcome == processes.Outcome(3, False, ["last"])
