"""Learning rate: linear warm-up, then constant or cosine."""

import numpy as np
import pytest

from common.model.schedules import SCHEDULES, learning_rates

STEPS = 14


def test_the_ramp_ends_its_epochs_at_the_known_learning_rates():
    scheduled = learning_rates(0.01, 8, 3, "constant", 5, STEPS)
    assert scheduled.shape == (5, STEPS)
    assert [f"{rate:.4f}" for rate in scheduled[:3, -1]] == ["0.0333", "0.0567", "0.0800"]


@pytest.mark.parametrize(("base", "n", "warmup", "steps"), [(0.01, 8, 3, 14), (0.1, 2, 5, 7), (0.001, 64, 1, 100), (0.01, 3, 2, 1)])
def test_the_ramp_follows_the_formula_at_every_step(base, n, warmup, steps):
    initial = base * n
    formula = [[initial / n * ((e + (b + 1) / steps) * (n - 1) / warmup + 1) for b in range(steps)] for e in range(warmup)]
    for schedule in SCHEDULES:
        np.testing.assert_allclose(learning_rates(base, n, warmup, schedule, warmup + 2, steps)[:warmup], formula, rtol=1e-12)


def test_after_the_ramp_the_learning_rate_is_constant():
    np.testing.assert_allclose(learning_rates(0.01, 8, 3, "constant", 6, STEPS)[3:], 0.08, rtol=1e-15)


@pytest.mark.parametrize("warmup", [0, 0.5, 3])
def test_factor_1_does_not_change_the_learning_rate(warmup):
    np.testing.assert_allclose(learning_rates(0.01, 1, warmup, "constant", 5, STEPS), 0.01, rtol=1e-15)


def test_without_warm_up_the_learning_rate_is_scaled_from_the_first_step():
    np.testing.assert_allclose(learning_rates(0.01, 8, 0, "constant", 2, STEPS), 0.08, rtol=1e-15)


@pytest.mark.parametrize(("warmup", "ramp_steps"), [(0.5, 7), (1.5, 21), (0.25, 4), (0.01, 1)])
def test_a_fractional_warm_up_rises_to_the_scaled_rate_and_not_beyond(warmup, ramp_steps):
    scheduled = learning_rates(0.01, 8, warmup, "constant", 3, STEPS).ravel()
    assert (np.diff(scheduled[:ramp_steps]) > 0).all()
    assert scheduled[0] > 0.01
    np.testing.assert_allclose(scheduled[ramp_steps - 1 :], 0.08, rtol=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_run_shorter_than_its_warm_up_stays_on_the_ramp(schedule):
    whole = learning_rates(0.01, 8, 3, "constant", 4, STEPS)
    np.testing.assert_allclose(learning_rates(0.01, 8, 3, schedule, 2, STEPS), whole[:2], rtol=1e-15)


@pytest.mark.parametrize("warmup", [0, 2, 2.5])
def test_the_cosine_starts_at_the_peak_and_falls_to_0(warmup):
    scheduled = learning_rates(0.01, 8, warmup, "cosine", 10, STEPS).ravel()
    falling = scheduled[round(warmup * STEPS) :]
    assert falling[0] == pytest.approx(0.08, rel=1e-12)
    assert (np.diff(falling) < 0).all()
    assert falling[len(falling) // 2] == pytest.approx(0.04, rel=0.02)
    assert 0 <= falling[-1] < 0.08 * 1e-3
    assert scheduled.max() <= 0.08 * (1 + 1e-12)
