"""The expected slowest of n ranks, against distributions whose maximum is known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.forecast.scaling import stragglers
from launch.forecast.scaling.stragglers import Slowest


def drawn(distribution, num=4000, seed=3):
    return np.sort(getattr(np.random.default_rng(seed), distribution)(size=num))


def harmonic(num):
    return sum(1 / number for number in range(1, num + 1))


@pytest.mark.parametrize(("draws", "num", "expected"), [([1, 2, 3], 1, 2), ([1, 3], 2, 2.5), ([5, 5], 100, 5), ([1, 2], 1000, 2)])
def test_the_expected_maximum_of_a_sample(draws, num, expected):
    assert stragglers.expected_maximum(np.array(draws, float), num) == pytest.approx(expected)


@pytest.mark.parametrize("num_ranks", [1, 10, 100, 400])
def test_where_the_samples_answer_the_slowest_of_exponential_draws_is_that_of_theory(num_ranks):
    assert Slowest(drawn("exponential")).factor(num_ranks) == pytest.approx(harmonic(num_ranks), rel=0.1)


def test_steps_of_two_ranks_are_already_the_slower_of_two():
    alone = drawn("exponential", 20000)
    pairs = np.sort(np.random.default_rng(4).exponential(size=(20000, 2)).max(axis=1))
    assert Slowest(pairs, 2).factor(64) == pytest.approx(Slowest(alone).factor(64), rel=0.05)


def test_slow_drift_over_epochs_is_no_straggling():
    steps = [1.0, 1.0, 1.2, 2.0, 2.0, 2.4]
    relative = stragglers.relative(steps, 2)
    assert relative.tolist() == pytest.approx(sorted(np.array([1, 1, 1.2, 1, 1, 1.2]) / np.mean([1, 1, 1.2])))


@given(st.lists(st.floats(0.5, 5.0), min_size=1, max_size=60), st.integers(1, 10**6))
def test_more_ranks_are_never_faster(draws, num_ranks):
    slowest = Slowest(np.sort(np.array(draws)))
    assert math.isfinite(slowest.factor(num_ranks))
    assert slowest.factor(2 * num_ranks) >= slowest.factor(num_ranks) * (1 - 1e-9)
