"""Sources of a merged trace: their tracks, and the offsets of their clocks with the error bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.tracing.sources import Offset, clock_error, clock_offset

MS = 1_000_000


@pytest.mark.parametrize(
    ("of_this_rank", "of_rank_0", "expected"),
    [
        # One clock: rank 0 is in the collective for 2 ms, this rank for its last 1 ms.
        ([(1 * MS, 2 * MS)], [(0, 2 * MS)], Offset(0.0, 2000.0)),
        # The shortest collective bounds best.
        ([(1 * MS, 2 * MS), (9 * MS, 10 * MS)], [(0, 2 * MS), (9 * MS, 10 * MS)], Offset(0.0, 1000.0)),
        # 100 ms ahead, seen in a collective of 2 ms.
        ([(100 * MS, 102 * MS)], [(0, 2 * MS)], Offset(100_000.0, 2000.0)),
        ([(0, 2 * MS)], [(100 * MS, 102 * MS)], Offset(-100_000.0, 2000.0)),
        # The clock was set between two collectives.
        ([(0, MS), (102 * MS, 103 * MS)], [(0, MS), (2 * MS, 3 * MS)], Offset(0.0, None)),
        ([], [], Offset(0.0, None)),
        ([(0, 1)], [], Offset(0.0, None)),
    ],
)
def test_offset(of_this_rank, of_rank_0, expected):
    assert clock_offset(of_this_rank, of_rank_0) == expected


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
    estimated = clock_offset(of_this_rank, of_rank_0)
    assert estimated.error is not None
    assert abs(estimated.ahead - ahead / 1000) <= estimated.error + 0.01


@pytest.mark.parametrize(
    ("seen", "before", "after", "error"),
    [
        ({1: 5.0}, {1: 4.0}, {1: 8.0}, 3.0),
        ({1: 5.0, 2: 15.0}, {1: 4.0, 2: 9.0}, {1: 8.0, 2: 15.5}, 1.0),
        # What is seen after the latest it can have been: the profiler's clock is ahead.
        ({1: 50.0}, {1: 4.0}, {1: 8.0}, 46.0),
        ({1: 5.0}, {2: 4.0}, {1: 8.0}, None),
        ({}, {}, {}, None),
    ],
)
def test_error_of_a_profilers_clock(seen, before, after, error):
    assert clock_error(seen, before, after) == error
