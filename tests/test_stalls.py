"""A rank that stands still: its watch, its line, and what the launcher's side makes of all of them."""

import threading

import pytest

from common import stalls
from common.stalls import Place, Standstill, Watch, read_line
from launch.standstills import told

START, TWENTIETH, LAST, EVALUATING = Place(), Place(1, 20, 22), Place(1, 22, 22), Place(1, 23, 22)


@pytest.mark.parametrize("place", [START, TWENTIETH, LAST, EVALUATING])
@pytest.mark.parametrize("before", ["", "[1] "])
def test_a_line_is_read_as_it_was_written(place, before):
    standstill = Standstill(3, place, 120.0)
    assert read_line(f"{before}error: {standstill}") == standstill


@pytest.mark.parametrize("line", ["", "error: rank 1: in step 20/22 of epoch 1: RuntimeError: boom", "rank 1: stood still"])
def test_other_lines_are_none_of_it(line):
    assert read_line(line) is None


def test_places_are_in_the_order_in_which_a_rank_comes_to_them():
    assert sorted([EVALUATING, LAST, Place(2, 1, 22), START, TWENTIETH]) == [START, TWENTIETH, LAST, EVALUATING, Place(2, 1, 22)]


@pytest.mark.parametrize(
    ("places", "line"),
    [
        (
            {0: TWENTIETH},
            "rank 1 stood still and said nothing, as a stopped process does; the others waited in step 20/22 of epoch 1 for 9 s "
            "(--stall-limit)",
        ),
        (
            {0: LAST, 1: TWENTIETH},
            "rank 1 stood still in step 20/22 of epoch 1 for 9 s (--stall-limit); the others waited in step 22/22 of epoch 1",
        ),
        ({1: EVALUATING, 0: EVALUATING}, "all ranks stood still after the 22 steps of epoch 1 for 9 s (--stall-limit)"),
        ({0: START, 1: START}, "all ranks stood still before the first epoch for 9 s (--stall-limit)"),
    ],
)
def test_the_rank_that_the_others_wait_for_is_named(places, line):
    assert told([Standstill(rank, place, 9.0) for rank, place in places.items()], 2) == line


def test_many_ranks_are_not_all_listed():
    assert told([Standstill(0, START, 9.0)], 512).startswith("ranks 1, 2, 3, 4, 5, 6, 7, 8 and 503 more stood still")


def test_a_single_rank_is_called_the_only_one():
    assert told([Standstill(0, LAST, 9.0)], 1).startswith("the only rank stood still in step 22/22")


def test_a_watch_calls_once_nothing_goes_on_and_says_where(monkeypatch):
    monkeypatch.setattr(stalls, "TICK_SECONDS", 0.01)
    called, calls = threading.Event(), []
    watch = Watch(0.3, lambda *told: (calls.append(told), called.set()))
    for step in (19, 20):
        watch.at(1, step, 22)
    assert called.wait(10)
    assert calls[0][0] == TWENTIETH
    assert calls[0][1] == pytest.approx(0.3, abs=0.02)


def test_a_watch_does_not_call_while_something_goes_on(monkeypatch):
    monkeypatch.setattr(stalls, "TICK_SECONDS", 0.01)
    called = threading.Event()
    watch = Watch(1.0, lambda *_: called.set())
    for _ in range(150):
        watch.goes_on()
        assert not called.wait(0.01)


def test_a_watch_without_a_limit_starts_nothing():
    before = threading.active_count()
    Watch(0.0, None)
    assert threading.active_count() == before
