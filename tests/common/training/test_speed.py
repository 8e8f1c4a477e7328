"""The speed of the machine before and after a training, with artificial files, and of the training: FLOP/s and their share of the peak."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from common.config import Settings
from common.ranks.gpus import Device
from common.ranks.launcher_variables import Ranks
from common.training import clock, speed
from common.workloads import WORKLOADS
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
    monkeypatch.setattr(speed.os, "sysconf", lambda _: 100)
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert speed.steal_seconds(cores, tmp_path / "stat") == pytest.approx(ticks / 100, nan_ok=True)


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
    assert speed.pressure_seconds(tmp_path / "cpu") == pytest.approx(seconds, nan_ok=True)


def test_the_frequency_is_that_of_the_slowest_core(tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "FREQUENCY", f"{tmp_path}/cpu{{}}")
    for core, kilohertz in enumerate((2_000_000, 1_500_000, 1_000_000)):
        (tmp_path / f"cpu{core}").write_text(f"{kilohertz}\n")
    assert speed.frequency({0, 1}) == 1.5e9
    assert math.isnan(speed.frequency({0, 7}))


def test_a_kernel_is_repeated_for_its_time_and_its_median_counts(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(speed.time, "perf_counter", lambda: now.seconds)
    # The warm-up is slow, and so is the second of four slices.
    seconds = iter([9.0] * speed.NUM_WARMUPS + [0.25, 1.0, 0.25, 0.25])

    def act():
        now.seconds += next(seconds)

    assert speed.repeated(act, 1.75) == 4.0


def test_the_speed_is_that_of_the_slowest_rank(monkeypatch):
    monkeypatch.setattr(speed, "product_speed", lambda: 4.0)
    monkeypatch.setattr(speed, "copy_speed", lambda: 4.0)
    monkeypatch.setattr(speed, "frequency", lambda _: math.nan)
    speeds = speed.speeds_by_rank(Rank0(0, 3.0, 5.0, 2.0, math.nan))
    np.testing.assert_array_equal(speeds, [[4.0, 3.0], [4.0, 5.0], [math.nan, 2.0], [math.nan, math.nan]])
    np.testing.assert_array_equal(speeds.min(axis=1), [3.0, 4.0, math.nan, math.nan])


def test_the_noise_of_a_run_is_measured_before_and_after_it_and_between_its_turns_only(monkeypatch):
    speeds, counters = (
        iter([[8.0, 9.0, 1.0, 2.0], [4.0, 9.0, 1.0, 2.0]]),
        iter([[1.0, 5.0, 100, 0.5], [2.0, 6.0, 150, 1.0], [7.0, 8.0, 160, 4.0], [9.0, 9.0, 161, 4.25]]),
    )
    monkeypatch.setattr(speed, "speeds_by_rank", lambda _: np.array(next(speeds))[:, None])
    monkeypatch.setattr(speed, "counters", lambda: np.array(next(counters)))
    turns_of_run = clock.Turns(Rank0(), 1.0, [])
    measure = speed.begin_noise(Rank0(), turns_of_run)
    with turns_of_run.meters[0].pause("turns"):
        pass
    measured = measure()
    assert (measured.product_flops_per_second, measured.copy_bytes_per_second) == ([8.0, 4.0], [9.0, 9.0])
    assert measured.product_flops_per_second_by_rank == [8.0]
    # Of 8 s of steal, 5 s were taken while others had their turn.
    assert (measured.steal_seconds, measured.pressure_seconds, measured.involuntary_switches_by_rank) == (3.0, 2.0, [51])
    assert (measured.cpu_throttled_seconds, measured.gpu_throttle_reasons) == (0.75, None)


def test_here_the_kernels_have_a_speed():
    assert speed.product_speed(0.01) > 1e6
    assert speed.copy_speed(0.01) > 1e6


CPU = Device("cpu", None, False, None, None, None, lambda precision, size: (precision, size))


class Trainer:
    """Rank 0 of several, all with the speeds of rank 0 but the last one, whose `speed` is given."""

    def __init__(self, num_ranks=1, speed=None, device=CPU):
        self.ranks, self.speed, self.device = Ranks(0, num_ranks, 0, num_ranks), speed, device

    def describe_device(self):
        return self.device

    def sum(self, values):
        constant = np.full(len(values), values[0])
        constant[-1] = values[0] if self.speed is None else self.speed
        return constant


NUM_FLOPS = WORKLOADS["transformer"].model.training_flops()


@pytest.fixture
def rates(monkeypatch):
    """A function that returns the record with the rates of a run, on devices that reach 4e9 FLOP/s."""
    monkeypatch.setattr(speed, "fastest", lambda _: 4e9)

    def record_of(trainer, workload="transformer", backend="ddp", rate=100.0):
        record = SimpleNamespace(backend=backend, samples_per_second=rate)
        speed.add_throughput(trainer, Settings(workload=workload), record)
        return record

    return record_of


def test_a_rank_computes_the_flops_of_its_samples(rates):
    record = rates(Trainer(4, 2e9))
    assert record.training_flops_per_sample == NUM_FLOPS
    assert record.flops_per_second_per_rank == NUM_FLOPS * 100 / 4
    assert record.peak_flops_per_second == 3.5e9
    assert record.share_of_peak == NUM_FLOPS * 25 / 3.5e9
    assert record.tokens_per_second == 6400.0
    assert rates(Trainer(), workload="cnn").tokens_per_second is None


# Ranks that compute one model together all compute; a server does not.
@pytest.mark.parametrize(("backend", "num_computing"), [("tensor_parallel", 4), ("pipeline@gpipe", 4), ("parameter_server", 3)])
def test_the_ranks_that_compute_share_the_flops(backend, num_computing, rates):
    assert rates(Trainer(4), backend=backend).flops_per_second_per_rank == NUM_FLOPS * 100 / num_computing


def test_without_a_peak_there_is_no_share_of_it(rates):
    record = rates(Trainer(device=CPU._replace(product=None)))
    assert not {"share_of_peak", "peak_flops_per_second"} & vars(record).keys()
    assert record.flops_per_second_per_rank > 0


def test_a_run_that_trained_nothing_has_no_rates(rates):
    record = vars(rates(Trainer(), rate=None))
    assert (record["training_flops_per_sample"], record["peak_flops_per_second"]) == (NUM_FLOPS, 4e9)
    assert not {"flops_per_second_per_rank", "share_of_peak", "tokens_per_second"} & record.keys()


@pytest.mark.parametrize(("backend", "library"), [("ddp", "PyTorch"), ("horovod_tf", "TensorFlow"), ("horovod_keras", "TensorFlow")])
def test_the_peak_is_that_of_the_framework(backend, library, rates):
    record = rates(Trainer(), backend=backend)
    assert (record.peak_flops_per_second, record.peak_library, record.framework_product_share) == (4e9, library, 1.0)


def test_a_slow_library_lowers_no_peak(rates, monkeypatch):
    monkeypatch.setattr(speed, "fastest", lambda product: 10e9 if product == "product of oneDNN" else 4e9)
    device = CPU._replace(onednn_product="product of oneDNN")
    record = rates(Trainer(device=device))
    assert (record.peak_flops_per_second, record.peak_library, record.framework_product_share) == (10e9, speed.ONEDNN, 0.4)
    assert record.share_of_peak == NUM_FLOPS * 100 / 10e9
    assert speed.flops_per_second_by_library(Trainer(device=device), "PyTorch", "fp64") == {"PyTorch": 4e9}


@pytest.mark.parametrize(
    ("flops_per_second", "sizes"),
    [
        # The first product that takes long is the last.
        ({512: 1e9}, [512]),
        ({512: 1e12, 1024: 2e12, 2048: 1e12}, [512, 1024, 2048]),
        # None does.
        (dict.fromkeys(speed.PEAK_SIZES, 1e15), list(speed.PEAK_SIZES)),
    ],
)
def test_the_peak_is_that_of_the_best_size(flops_per_second, sizes, monkeypatch):
    tried = []

    def product(size):
        tried.append(size)
        return 2 * size**3 / flops_per_second[size]

    monkeypatch.setattr(speed, "least_seconds", lambda seconds: seconds)
    assert speed.fastest(product) == pytest.approx(max(flops_per_second.values()))
    assert tried == sizes


def test_the_shortest_time_counts_after_the_warm_up(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(speed.time, "perf_counter", lambda: now.seconds)
    seconds = itertools.chain([0.001] * speed.NUM_PEAK_WARMUPS, [0.02, 0.01, 0.02], itertools.repeat(9.0))

    def act():
        now.seconds += next(seconds)

    assert speed.least_seconds(act) == pytest.approx(0.01)
