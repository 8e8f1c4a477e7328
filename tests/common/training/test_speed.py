"""The speed of the machine before and after a training, with artificial files, and of the training: FLOP/s and their share of the peak."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from common.config import Settings
from common.ranks.gpus import Device
from common.ranks.launcher_variables import Ranks
from common.training import speed
from common.workloads import WORKLOADS
from tests.support.rank_0 import Rank0


def test_a_kernel_is_repeated_for_its_time_and_its_median_counts(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(speed.time, "perf_counter", lambda: now.seconds)
    # The warm-up is slow, and so is the second of four slices.
    seconds = iter([9.0] * speed.NUM_WARMUPS + [0.25, 1.0, 0.25, 0.25])

    def act():
        now.seconds += next(seconds)

    assert speed.repeated(act, 1.75) == 4.0


def test_the_speed_is_that_of_the_slowest_rank_before_and_after_a_run(monkeypatch):
    monkeypatch.setattr(speed, "product_speed", iter([4.0, 2.0]).__next__)
    monkeypatch.setattr(speed, "copy_speed", iter([9.0, 9.0]).__next__)
    trainer = Rank0(0, 3.0, 5.0, 0, 5.0, 7.0)
    measured = speed.machine_noise(speed.speeds_by_rank(trainer), speed.speeds_by_rank(trainer))
    assert (measured.product_flops_per_second, measured.copy_bytes_per_second) == ([3.0, 2.0], [5.0, 7.0])


CPU = Device("cpu", None, None, None, None, lambda precision, size: (precision, size))


class Trainer(Rank0):
    """Rank 0 of several, all with the speeds of rank 0 but the last one, whose `speed` is given."""

    def __init__(self, num_ranks=1, speed=None, device=CPU):
        super().__init__(device=device)
        self.ranks, self.speed = Ranks(0, num_ranks, 0, num_ranks), speed

    def sum(self, values):
        return np.append(np.full(len(values) - 1, values[0]), values[0] if self.speed is None else self.speed)


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


def test_without_a_peak_there_is_no_share_of_it_and_a_run_that_trained_nothing_has_no_rates(rates):
    record = rates(Trainer(device=CPU._replace(product=None)))
    assert not {"share_of_peak", "peak_flops_per_second"} & vars(record).keys()
    assert record.flops_per_second_per_rank > 0
    record = rates(Trainer(), rate=None)
    assert (record.training_flops_per_sample, record.peak_flops_per_second) == (NUM_FLOPS, 4e9)
    assert not {"flops_per_second_per_rank", "share_of_peak", "tokens_per_second"} & vars(record).keys()


def test_the_peak_is_that_of_the_framework_or_of_a_faster_library(rates, monkeypatch):
    for backend, library in (("ddp", "PyTorch"), ("horovod_keras", "TensorFlow")):
        record = rates(Trainer(), backend=backend)
        assert (record.peak_flops_per_second, record.peak_library, record.framework_product_share) == (4e9, library, 1.0)
    monkeypatch.setattr(speed, "fastest", lambda product: 10e9 if product == "product of oneDNN" else 4e9)
    device = CPU._replace(onednn_product="product of oneDNN")
    record = rates(Trainer(device=device))
    assert (record.peak_flops_per_second, record.peak_library, record.framework_product_share) == (10e9, speed.ONEDNN, 0.4)
    assert record.share_of_peak == NUM_FLOPS * 100 / 10e9
    assert speed.flops_per_second_by_library(Trainer(device=device), "PyTorch", "fp64") == {"PyTorch": 4e9}


# The first product that takes long is the last, or none does.
@pytest.mark.parametrize("flops_per_second", [{512: 1e9}, {512: 1e12, 1024: 2e12, 2048: 1e12}, dict.fromkeys(speed.PEAK_SIZES, 1e15)])
def test_the_peak_is_that_of_the_best_size(flops_per_second, monkeypatch):
    tried = []

    def product(size):
        tried.append(size)
        return 2 * size**3 / flops_per_second[size]

    monkeypatch.setattr(speed, "least_seconds", lambda seconds: seconds)
    assert speed.fastest(product) == pytest.approx(max(flops_per_second.values()))
    assert tried == list(flops_per_second)


def test_the_shortest_time_counts_after_the_warm_up(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(speed.time, "perf_counter", lambda: now.seconds)
    seconds = itertools.chain([0.001] * speed.NUM_PEAK_WARMUPS, [0.02, 0.01, 0.02], itertools.repeat(9.0))

    def act():
        now.seconds += next(seconds)

    assert speed.least_seconds(act) == pytest.approx(0.01)
