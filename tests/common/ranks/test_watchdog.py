"""Hangs: the watchdog, and the description of what all ranks have reported."""

import queue
import threading
from types import SimpleNamespace

import pytest

from common.ranks import watchdog
from common.ranks.messages import Hang, Position
from common.ranks.watchdog import Watchdog
from launch.run.failures import describe_hang

START, TWENTIETH, LAST, EVALUATING = Position(), Position(1, 20, 22), Position(1, 22, 22), Position(1, 23, 22)


@pytest.mark.parametrize(
    ("places", "line"),
    [
        ({0: TWENTIETH}, "rank 1 hung without a report, as a stopped process does; the others waited in step 20/22 of epoch 1 for 9 s {}"),
        ({0: LAST, 1: TWENTIETH}, "rank 1 hung in step 20/22 of epoch 1 for 9 s {}; the others waited in step 22/22 of epoch 1"),
        ({1: EVALUATING, 0: EVALUATING}, "all ranks hung after the 22 steps of epoch 1 for 9 s {}"),
        ({0: START, 1: START}, "all ranks hung before the first epoch for 9 s {}"),
    ],
)
def test_the_rank_that_the_others_wait_for_is_named(places, line):
    assert describe_hang([Hang(rank, place, 9.0) for rank, place in places.items()], 2) == line.format("(--watchdog-timeout)")


def test_many_ranks_are_not_all_listed_and_a_single_rank_is_called_the_only_one():
    assert describe_hang([Hang(0, START, 9.0)], 512).startswith("ranks 1, 2, 3, 4, 5, 6, 7, 8 and 503 more hung")
    assert describe_hang([Hang(0, LAST, 9.0)], 1).startswith("the only rank hung in step 22/22")


def test_a_watchdog_reports_a_hang_and_its_place(monkeypatch):
    monkeypatch.setattr(watchdog, "TICK_SECONDS", 0.01)
    hangs = queue.SimpleQueue()
    dog = Watchdog(0.3, 3, hangs.put)
    for place in (LAST, TWENTIETH):
        dog.begin(place)
    assert hangs.get(timeout=10) == Hang(3, TWENTIETH, pytest.approx(0.3, abs=0.02))


def test_a_watchdog_reports_nothing_while_there_are_heartbeats(monkeypatch):
    monkeypatch.setattr(watchdog, "TICK_SECONDS", 0.01)
    called = threading.Event()
    dog = Watchdog(1.0, 0, lambda *_: called.set())
    for _ in range(150):
        dog.heartbeat()
        assert not called.wait(0.01)


def test_time_in_which_the_process_was_stopped_does_not_count(monkeypatch):
    clock, called = [0.0], threading.Event()

    def sleep(_):
        # Stopped for an hour at each tick.
        clock[0] += 3600.0

    monkeypatch.setattr(watchdog, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0], perf_counter=lambda: clock[0]))
    Watchdog(5 * watchdog.TICK_SECONDS, 0, lambda *_: called.set())
    assert called.wait(10)
    assert clock[0] == 5 * 3600.0
