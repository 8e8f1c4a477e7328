"""The clock counts what happens outside of its pauses, and a delayed run waits on it."""

from types import SimpleNamespace

import numpy as np
import pytest

from common.config import Settings
from common.training.clock import HEARTBEAT_SECONDS, Delay, Meter


@pytest.mark.parametrize("unit", [1.0, np.array([1.0, 10.0])])
def test_pauses_do_not_count(unit):
    read = iter(np.multiply.outer([5.0, 6.0, 6.5, 16.5, 17.0, 17.5, 117.5, 118.0], unit))
    meter = Meter(lambda: next(read))
    np.testing.assert_array_equal(meter.now(), 1 * unit)
    for reason, seconds in (("others", 2), ("checks", 3)):
        with meter.pause(reason):
            pass
        np.testing.assert_array_equal(meter.now(), seconds * unit)
    np.testing.assert_array_equal([meter.paused[reason] for reason in ("others", "checks")], [10 * unit, 100 * unit])


@pytest.mark.parametrize(("control", "expected"), [("delayed", 1.05 * 45), ("copy", 45), (None, 45)])
def test_only_a_delayed_run_takes_5_percent_longer_and_gives_heartbeats(monkeypatch, control, expected):
    time, waits, heartbeats = SimpleNamespace(now=100.0), [], []

    def sleep(seconds):
        waits.append(seconds)
        time.now += seconds

    monkeypatch.setattr("common.training.clock.time.sleep", sleep)
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
