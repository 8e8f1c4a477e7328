"""Sources of a merged trace: their tracks, and the offsets of their clocks with the error bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.trace.sources import Clock, ClockOfRank, Source, Steps, clock_of_rank, step_error

MS = 1_000_000


@pytest.mark.parametrize(
    ("of_this_rank", "of_rank_0", "expected"),
    [
        # One clock: rank 0 is in the collective for 2 ms, this rank for its last 1 ms.
        ([(1 * MS, 2 * MS)], [(0, 2 * MS)], ClockOfRank(0.0, 2000.0)),
        # The shortest collective bounds best.
        ([(1 * MS, 2 * MS), (9 * MS, 10 * MS)], [(0, 2 * MS), (9 * MS, 10 * MS)], ClockOfRank(0.0, 1000.0)),
        # 100 ms ahead, seen in a collective of 2 ms.
        ([(100 * MS, 102 * MS)], [(0, 2 * MS)], ClockOfRank(100_000.0, 2000.0)),
        ([(0, 2 * MS)], [(100 * MS, 102 * MS)], ClockOfRank(-100_000.0, 2000.0)),
        # The clock was set between two collectives.
        ([(0, MS), (102 * MS, 103 * MS)], [(0, MS), (2 * MS, 3 * MS)], ClockOfRank(0.0, None)),
        ([], [], ClockOfRank(0.0, None)),
        ([(0, 1)], [], ClockOfRank(0.0, None)),
    ],
)
def test_offset(of_this_rank, of_rank_0, expected):
    assert clock_of_rank(of_this_rank, of_rank_0) == expected


@given(
    st.integers(-10_000 * MS, 10_000 * MS),
    st.lists(st.tuples(*[st.integers(0, 50 * MS)] * 4), min_size=1, max_size=10),
)
def test_the_true_offset_is_within_the_error(ahead, meetings):
    """For arbitrary times of a collective: no rank leaves before all have entered."""
    of_this_rank, of_rank_0 = [], []
    for number, (enter, enter_0, stay, stay_0) in enumerate(meetings):
        begun = number * 1000 * MS
        all_entered = begun + max(enter, enter_0)
        of_this_rank.append((begun + enter + ahead, all_entered + stay + ahead))
        of_rank_0.append((begun + enter_0, all_entered + stay_0))
    estimated = clock_of_rank(of_this_rank, of_rank_0)
    assert estimated.error_microseconds is not None
    assert abs(estimated.clock_ahead_microseconds - ahead / 1000) <= estimated.error_microseconds + 0.01


@pytest.mark.parametrize(
    ("start", "before", "after", "error"),
    [
        (5.0, {1: 4.0}, {1: 8.0}, 3.0),
        # What is seen after the latest it can have been: the profiler's clock is ahead.
        (50.0, {1: 4.0}, {1: 8.0}, 46.0),
        (5.0, {2: 4.0}, {1: 8.0}, None),
    ],
)
def test_error_of_a_profilers_clock(start, before, after, error):
    steps = Steps(Source(Clock("", None, ""), 0, 0, ()), [], before, after)
    assert step_error(1, start, steps) == error
