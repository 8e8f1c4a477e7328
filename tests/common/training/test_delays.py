"""The waits of a run that should be found slower."""

from types import SimpleNamespace

import pytest

from common.config import Settings
from common.meter import Meter
from common.training import delays
from common.training.delays import HEARTBEAT_SECONDS, Delay


@pytest.mark.parametrize(("control", "expected"), [("delayed", 1.05 * 45), ("copy", 45), (None, 45)])
def test_only_a_delayed_run_takes_5_percent_longer_and_gives_heartbeats(monkeypatch, control, expected):
    time, waits, heartbeats = SimpleNamespace(now=100.0), [], []

    def sleep(seconds):
        waits.append(seconds)
        time.now += seconds

    monkeypatch.setattr(delays.time, "sleep", sleep)
    clock = Meter(lambda: time.now)
    delay = Delay(Settings(control=control), clock, SimpleNamespace(heartbeat=lambda: heartbeats.append(time.now)))
    # Before the epoch, and while others have their turns, nothing is delayed.
    time.now += 10
    delay.begin()
    begun = clock.now()
    for seconds in (1, 40, 0, 4):
        time.now += seconds
        delay.wait()
        with clock.pause("turns"):
            time.now += 100
    assert clock.now() - begun == pytest.approx(expected)
    assert len(heartbeats) == len(waits)
    assert max(waits, default=0) <= HEARTBEAT_SECONDS
