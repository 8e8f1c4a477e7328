"""A call is timed in loops that follow its length, and every rank makes the same number of calls; the fit of what was measured."""

import time

import numpy as np
import pytest

from common.process.ranks import Ranks
from frameworks.shared.collectives.library import Library
from launch.collectives import measurement
from launch.collectives.measurement import Measurement


def library(*seconds_of_others):
    """The library of rank 0, beside ranks whose calls take so long."""

    def summed(values):
        return values if len(values) == 1 else values + np.array([0, *seconds_of_others])

    return Library(Ranks(size=1 + len(seconds_of_others)), summed, {}, lambda: None)


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 1000), (1e-6, 1000), (1e-3, 20), (0.015, 2), (0.02, 1), (5.0, 1)])
def test_a_repeat_takes_about_as_long_whatever_the_call(seconds, expected):
    assert measurement.iterations(seconds) == expected


@pytest.mark.parametrize(
    ("seconds_of_others", "num_first"), [((), 1 + measurement.NUM_WARMUPS), ((0.05,), 1 + measurement.NUM_WARMUPS), ((0.4,), 1)]
)
def test_the_mean_over_ranks_decides_how_often_all_make_a_call(seconds_of_others, num_first):
    calls, beats = [], []

    def call():
        calls.append(1)
        time.sleep(0.004)

    seconds, num_iterations = measurement.time_call(library(*seconds_of_others), call, 3, lambda: beats.append(1))
    assert len(calls) == num_first + 3 * num_iterations
    # Alone this rank would make five calls.
    assert num_iterations == 1 or not seconds_of_others
    assert min(seconds) >= np.mean([0.004, *seconds_of_others])
    assert (len(seconds), len(beats)) == (3, 3 + min(num_first, 2))


@pytest.mark.parametrize(
    ("collective", "in_place"), [("all_reduce", True), ("broadcast", True), ("all_gather", False), ("send_recv", False)]
)
def test_alpha_and_beta_are_of_one_half(collective, in_place):
    results = [
        Measurement("mpi", collective, half, 4, size, size // 4, [alpha + 1e-9 * size], 10, 0)
        for half, alpha in ((False, 3e-5), (True, 1e-5)) for size in (8, 1024, 2**20)
    ]  # fmt: skip
    fitted = measurement.fit(results)
    assert (fitted.in_place, fitted.library, fitted.collective, fitted.num_ranks) == (in_place, "mpi", collective, 4)
    assert fitted.regimes[0].alpha_seconds == pytest.approx(1e-5 if in_place else 3e-5)
