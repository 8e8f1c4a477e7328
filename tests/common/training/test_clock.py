"""The clock counts what happens outside of its pauses, a delayed run waits on it, and runs share the length of a turn."""

from types import SimpleNamespace

import numpy as np
import pytest

from common.config import Settings
from common.training.clock import HEARTBEAT_SECONDS, Delay, Meter, Turns
from tests.support.rank_0 import Rank0


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


@pytest.mark.parametrize(
    ("step_seconds", "num_steps", "expected"),
    [(0.1, 100, 20), (0.1, 34, 17), (4.0, 100, 1), (0.1, 10, 10)],
    ids=["part", "halves", "one step", "epoch"],
)
@pytest.mark.usefixtures("side_by_side")
def test_the_epochs_of_all_runs_of_a_group_have_as_many_turns_as_those_of_the_first(step_seconds, num_steps, expected):
    first, slower, with_more_steps = (Turns(Rank0(), seconds, []) for seconds in (step_seconds, 3 * step_seconds, step_seconds))
    first.begin(num_steps)
    slower.begin(num_steps)
    with_more_steps.begin(2 * num_steps)
    assert (first.num_steps, slower.num_steps, with_more_steps.num_steps) == (expected, expected, 2 * expected)
