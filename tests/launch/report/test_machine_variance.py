"""Components of variance and prediction intervals: a table worked by hand, and simulations of what they claim."""

import numpy as np
import pytest

from launch.report.machine_variance import components, means, noise_variance, num_predicted, prediction

# Mean squares of repeats, sessions and machines are 2, 4 and 200.
BALANCED = {"a": {"1": [0, 2], "2": [2, 4]}, "b": {"1": [10, 12], "2": [12, 14]}}


def simulated(generator, num_machines, machine=0.0, session=0.0, repeat=0.0, sessions=(2, 1, 3)):
    """Values of machines with these standard deviations, and with numbers of sessions and repeats that differ."""
    values = {}
    for number in range(num_machines):
        mean = generator.normal(0, machine)
        values[str(number)] = {
            str(index): (mean + generator.normal(0, session) + generator.normal(0, repeat, 4 + index)).tolist()
            for index in range(sessions[number % len(sessions)])
        }
    return values


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (BALANCED, (49, 1, 2)),
        ({machine: {"1": [*sessions["1"], *sessions["2"]]} for machine, sessions in BALANCED.items()}, (50 - 2 / 3, None, 8 / 3)),
        ({"a": {"1": [0, 2]}, "b": {"1": [1, 1]}}, (0, None, 1)),
    ],
)
def test_the_components_of_a_table_are_those_worked_by_hand(values, expected):
    assert components(values) == pytest.approx(expected)


def test_the_share_is_the_machines_and_noise_of_a_mean_falls_with_sessions_and_repeats():
    parts = components(BALANCED)
    assert parts.machine_share == pytest.approx(49 / 52)
    assert noise_variance(BALANCED, parts) == pytest.approx(1 / 2 + 2 / 4)
    assert components({"a": {"1": [1, 1]}, "b": {"1": [1, 1]}}).machine_share is None


@pytest.mark.parametrize("values", [{"a": {"1": [1, 2, 3]}}, {"a": {"1": [1]}, "b": {"1": [2]}}])
def test_one_machine_or_no_repeats_give_no_components(values):
    assert components(values) is None


def test_the_components_are_right_on_average_where_sessions_and_repeats_are_unbalanced():
    generator = np.random.default_rng(40)
    drawn = [components(simulated(generator, 9, machine=1.0, session=0.7, repeat=0.5)) for _ in range(600)]
    assert np.mean(drawn, axis=0) == pytest.approx([1.0, 0.49, 0.25], rel=0.1)


@pytest.mark.parametrize("num_machines", [2, 3, 6])
@pytest.mark.parametrize("machine", [0.0, 0.3])
def test_a_machine_not_measured_is_in_the_interval_in_95_of_100_cases_or_more(num_machines, machine):
    generator = np.random.default_rng(41)
    num_inside = 0
    for _ in range(600):
        drawn = simulated(generator, num_machines + 1, machine=machine, session=0.05, repeat=0.1, sessions=(2,))
        *measured, further = means(drawn).values()
        known = {name: drawn[name] for name in list(drawn)[:-1]}
        low, high = prediction(measured, noise_variance(known, components(known)))
        num_inside += low <= further <= high
    assert num_inside / 600 > 0.93
    # Means that are near to each other by chance, as two often are, get the width of their noise.
    if machine and num_machines > 2:
        assert num_inside / 600 < 0.975


def test_two_machines_that_agree_by_chance_have_an_interval_as_wide_as_their_noise():
    assert prediction([1.0, 1.0]) == (1.0, 1.0)
    low, high = prediction([1.0, 1.0], 0.01)
    assert (low, high) == pytest.approx((1 - 12.706 * 0.1 * 1.5**0.5, 1 + 12.706 * 0.1 * 1.5**0.5), rel=1e-4)
    assert prediction([1.0]) is None


@pytest.mark.parametrize(
    ("measured", "expected"), [([1, 2], None), ([1.0, 1.1, 0.9, 1.05, 0.95], 5), ([1.0, 1.1, 0.9, 1.05, 0.95, 9.0], 5)]
)
def test_of_machines_left_out_one_at_a_time_one_that_is_far_away_is_not_predicted(measured, expected):
    assert num_predicted(measured) == expected
