"""Hockney's model is fitted to known times: its alpha, beta and switch points come out again."""

import numpy as np
import pytest

from common.errors import UserError
from launch.forecast.network import hockney
from launch.forecast.network.hockney import Regime

SIZES = [2**power for power in range(3, 29)]


def times(sizes, regimes, switches, noise=0.0):
    """Seconds of each size; the regime changes above each of the switches. Noise is multiplied, with a fixed seed."""
    chosen = [regimes[sum(size > switch for switch in switches)] for size in sizes]
    exact = np.array([alpha + beta * size for (alpha, beta), size in zip(chosen, sizes, strict=True)])
    return exact * np.exp(noise * np.random.default_rng(1).standard_normal(len(sizes)))


LINE = (7e-6, 3e-10)
THREE = [(5e-6, 4e-10), (40e-6, 2e-10), (500e-6, 5e-10)]


@pytest.mark.parametrize(
    ("regimes", "begins", "noise"),
    [([LINE], [8], 0.0), (THREE, [8, 16384, 2**21], 0.0), (THREE, [8, 16384, 2**21], 0.03)],
)
def test_switch_points_are_found(regimes, begins, noise):
    fitted = hockney.fit(SIZES, times(SIZES, regimes, [begin // 2 for begin in begins[1:]], noise))
    assert [regime.from_bytes for regime in fitted] == begins
    for regime, (alpha, beta) in zip(fitted, regimes, strict=True):
        middle = 2 * regime.from_bytes if regime.from_bytes > 8 else 4096
        assert hockney.seconds_of(fitted, middle) == pytest.approx(alpha + beta * middle, rel=0.05 if noise else 1e-6)
        assert regime.relative_residual == pytest.approx(noise, abs=0.02 if noise else 1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_noise_makes_no_regimes(seed):
    noise = np.exp(0.1 * np.random.default_rng(seed).standard_normal(len(SIZES)))
    assert len(hockney.fit(SIZES, times(SIZES, [LINE], []) * noise)) == 1


def test_small_messages_count_as_much_as_large_ones():
    measured = times(SIZES, [(5e-6, 1e-10)], [])
    measured[-1] *= 1.2
    assert hockney.fit(SIZES, measured)[0].alpha_seconds == pytest.approx(5e-6, rel=0.05)


@pytest.mark.parametrize("measured", [[3e-6, 2e-6, 1e-6, 1e-6], [1e-6, 1e-5, 1e-4, 9e-2]])
def test_alpha_and_beta_are_not_negative(measured):
    for regime in hockney.fit([8, 1024, 32768, 2**20], measured):
        assert min(regime.alpha_seconds, regime.beta_seconds_per_byte) >= 0


def test_the_median_of_a_size_counts_and_the_order_does_not():
    repeated = np.array([SIZES * 3, [*times(SIZES, [LINE], []), *times(SIZES, [LINE], []), *[1.0] * len(SIZES)]]).T
    shuffled = np.random.default_rng(1).permutation(repeated)
    assert hockney.fit(*shuffled.T)[0].alpha_seconds == pytest.approx(7e-6, rel=1e-6)


def test_what_repeats_show_to_be_noise_makes_no_regime():
    # The first sizes take half the time, which one repeat of three shows to be chance.
    once = times(SIZES, [LINE], []) * np.where(np.array(SIZES) < 256, 0.5, 1)
    assert len(hockney.fit(SIZES, once)) == 2
    assert len(hockney.fit(np.tile(SIZES, 3), np.concatenate([once, once, 3 * once]))) == 1


def test_sizes_that_are_few_or_close_are_no_regime():
    measured = times(SIZES, [(2e-3, 1e-9)], [])
    measured[:3] = [3e-4, 1e-3, 2e-3]
    assert all(regime.from_bytes in {8, *SIZES[4:]} for regime in hockney.fit(SIZES, measured))
    # As in a record.
    assert len(hockney.fit([1024, 32768, 2**20, 4799528], [9e-6, 22e-6, 3e-4, 2e-3])) == 1


@pytest.mark.parametrize(("size", "seconds"), [(1, 1.1), (10, 2.0), (99, 10.9), (100, 7.0), (1000, 52.0)])
def test_a_size_takes_the_line_of_its_regime(size, seconds):
    assert hockney.seconds_of((Regime(10, 1.0, 0.1, 0.0), Regime(100, 2.0, 0.05, 0.0)), size) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("sizes", "seconds", "message"),
    [
        ([], [], "at 3 sizes or more, not 0"),
        ([8, 8, 16, 16], [1e-6] * 4, "at 3 sizes or more, not 2"),
        ([0, 8, 16], [1e-6] * 3, "sizes of at least 1 byte"),
        ([8, 16, 32], [1e-6, 0.0, 1e-6], "times above 0 seconds"),
        ([8, 16, 32], [1e-6, float("nan"), 1e-6], "times above 0 seconds"),
    ],
)
def test_what_cannot_be_fitted_is_refused(sizes, seconds, message):
    with pytest.raises(UserError, match=message):
        hockney.fit(sizes, seconds)
