"""The machine's noise: what Linux counts, and the speeds of all ranks, with artificial files."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from common.process import turns
from common.training import noise
from tests.support.rank_0 import Rank0

STAT = """cpu  100 0 100 1000 0 0 0 30 0 0
cpu0 50 0 50 500 0 0 0 10 0 0
cpu1 50 0 50 500 0 0 0 20 0 0
cpu10 0 0 0 0 0 0 0 400 0 0
intr 1234
"""


@pytest.mark.parametrize(
    ("text", "cores", "ticks"),
    [
        *[(STAT, cores, ticks) for cores, ticks in (({1}, 20), ({0, 1}, 30), ({10}, 400), ({7}, math.nan))],
        *[(text, {0}, math.nan) for text in (None, "", "cpu0 1 2\n")],
    ],
)
def test_steal_is_that_of_the_cores_as_far_as_linux_tells(text, cores, ticks, tmp_path, monkeypatch):
    monkeypatch.setattr(noise.os, "sysconf", lambda _: 100)
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert noise.steal_seconds(cores, tmp_path / "stat") == pytest.approx(ticks / 100, nan_ok=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("some avg10=1.00 avg60=0.50 avg300=0.10 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n", 2.5),
        ("full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n", math.nan),
        (None, math.nan),
    ],
)
def test_pressure_is_the_time_in_which_some_process_waited(text, seconds, tmp_path):
    if text is not None:
        (tmp_path / "cpu").write_text(text)
    assert noise.pressure_seconds(tmp_path / "cpu") == pytest.approx(seconds, nan_ok=True)


def test_the_frequency_is_that_of_the_slowest_core(tmp_path, monkeypatch):
    monkeypatch.setattr(noise, "FREQUENCY", f"{tmp_path}/cpu{{}}")
    for core, kilohertz in enumerate((2_000_000, 1_500_000, 1_000_000)):
        (tmp_path / f"cpu{core}").write_text(f"{kilohertz}\n")
    assert noise.frequency({0, 1}) == 1.5e9
    assert math.isnan(noise.frequency({0, 7}))


def test_a_kernel_is_repeated_for_its_time_and_its_median_counts(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(noise.time, "perf_counter", lambda: now.seconds)
    # The warm-up is slow, and so is the second of four slices.
    seconds = iter([9.0] * noise.NUM_WARMUPS + [0.25, 1.0, 0.25, 0.25])

    def act():
        now.seconds += next(seconds)

    assert noise.repeated(act, 1.75) == 4.0


def test_the_speed_is_that_of_the_slowest_rank(monkeypatch):
    monkeypatch.setattr(noise, "product_speed", lambda: 4.0)
    monkeypatch.setattr(noise, "copy_speed", lambda: 4.0)
    monkeypatch.setattr(noise, "frequency", lambda _: math.nan)
    speeds = noise.speeds_by_rank(Rank0(0, 3.0, 5.0, 2.0, math.nan))
    np.testing.assert_array_equal(speeds, [[4.0, 3.0], [4.0, 5.0], [math.nan, 2.0], [math.nan, math.nan]])
    np.testing.assert_array_equal(speeds.min(axis=1), [3.0, 4.0, math.nan, math.nan])


def test_the_noise_of_a_run_is_measured_before_and_after_it_and_between_its_turns_only(monkeypatch):
    speeds, counters = (
        iter([[8.0, 9.0, 1.0, 2.0], [4.0, 9.0, 1.0, 2.0]]),
        iter([[1.0, 5.0, 100, 0.5], [2.0, 6.0, 150, 1.0], [7.0, 8.0, 160, 4.0], [9.0, 9.0, 161, 4.25]]),
    )
    monkeypatch.setattr(noise, "speeds_by_rank", lambda _: np.array(next(speeds))[:, None])
    monkeypatch.setattr(noise, "counters", lambda: np.array(next(counters)))
    turns_of_run = turns.Turns(Rank0(), 1.0, [])
    measure = noise.begin(Rank0(), turns_of_run)
    with turns_of_run.meters[0].pause("turns"):
        pass
    measured = measure()
    assert (measured.product_flops_per_second, measured.copy_bytes_per_second) == ([8.0, 4.0], [9.0, 9.0])
    assert measured.product_flops_per_second_by_rank == [8.0]
    # Of 8 s of steal, 5 s were taken while others had their turn.
    assert (measured.steal_seconds, measured.pressure_seconds, measured.involuntary_switches_by_rank) == (3.0, 2.0, [51])
    assert (measured.cpu_throttled_seconds, measured.gpu_throttle_reasons) == (0.75, None)


def test_here_the_kernels_have_a_speed():
    assert noise.product_speed(0.01) > 1e6
    assert noise.copy_speed(0.01) > 1e6
