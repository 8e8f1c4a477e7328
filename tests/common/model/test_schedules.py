"""Learning rate: linear warm-up, then constant or cosine."""

import numpy as np
import pytest

from common.model.schedules import SCHEDULES, learning_rates

STEPS = 14


@pytest.mark.parametrize(("base", "n", "warmup", "steps"), [(0.01, 8, 3, 14), (0.1, 2, 5, 7), (0.001, 64, 1, 100), (0.01, 3, 2, 1)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_ramp_follows_the_formula_at_every_step_also_where_the_run_ends_on_it(base, n, warmup, steps, schedule):
    initial = base * n
    formula = [[initial / n * ((e + (b + 1) / steps) * (n - 1) / warmup + 1) for b in range(steps)] for e in range(warmup)]
    for num_epochs in (1, warmup, warmup + 2):
        scheduled = learning_rates(base, n, warmup, schedule, num_epochs, steps)[:warmup]
        np.testing.assert_allclose(scheduled, formula[:num_epochs], rtol=1e-12)


@pytest.mark.parametrize(
    ("factor", "warmup", "begin", "rate"), [(8, 3, 3, 0.08), (8, 0, 0, 0.08), (1, 0, 0, 0.01), (1, 0.5, 0, 0.01), (1, 3, 0, 0.01)]
)
def test_after_the_ramp_and_with_factor_1_the_learning_rate_is_constant(factor, warmup, begin, rate):
    np.testing.assert_allclose(learning_rates(0.01, factor, warmup, "constant", 6, STEPS)[begin:], rate, rtol=1e-15)


@pytest.mark.parametrize(("warmup", "ramp_steps"), [(0.5, 7), (1.5, 21), (0.25, 4), (0.01, 1)])
def test_a_fractional_warm_up_rises_to_the_scaled_rate_and_not_beyond(warmup, ramp_steps):
    scheduled = learning_rates(0.01, 8, warmup, "constant", 3, STEPS).ravel()
    assert (np.diff(scheduled[:ramp_steps]) > 0).all()
    assert scheduled[0] > 0.01
    np.testing.assert_allclose(scheduled[ramp_steps - 1 :], 0.08, rtol=1e-12)


@pytest.mark.parametrize("warmup", [0, 2, 2.5])
def test_the_cosine_starts_at_the_peak_and_falls_to_0(warmup):
    scheduled = learning_rates(0.01, 8, warmup, "cosine", 10, STEPS).ravel()
    falling = scheduled[round(warmup * STEPS) :]
    assert falling[0] == pytest.approx(0.08, rel=1e-12)
    assert (np.diff(falling) < 0).all()
    assert falling[len(falling) // 2] == pytest.approx(0.04, rel=0.02)
    assert 0 <= falling[-1] < 0.08 * 1e-3
    assert scheduled.max() <= 0.08 * (1 + 1e-12)
