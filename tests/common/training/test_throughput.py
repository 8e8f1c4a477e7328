"""FLOP/s, their share of the peak and tokens/s, of records and of products whose times are given."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from common.config import Settings
from common.process.gpus import Device
from common.process.ranks import Ranks
from common.training import throughput
from common.workloads import WORKLOADS

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
    monkeypatch.setattr(throughput, "fastest", lambda _: 4e9)

    def record_of(trainer, workload="transformer", backend="ddp", rate=100.0):
        record = SimpleNamespace(backend=backend, samples_per_second=rate)
        throughput.add_to_record(trainer, Settings(workload=workload), record)
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
    monkeypatch.setattr(throughput, "fastest", lambda product: 10e9 if product == "product of oneDNN" else 4e9)
    device = CPU._replace(onednn_product="product of oneDNN")
    record = rates(Trainer(device=device))
    assert (record.peak_flops_per_second, record.peak_library, record.framework_product_share) == (10e9, throughput.ONEDNN, 0.4)
    assert record.share_of_peak == NUM_FLOPS * 100 / 10e9
    assert throughput.flops_per_second_by_library(Trainer(device=device), "PyTorch", "fp64") == {"PyTorch": 4e9}


@pytest.mark.parametrize(
    ("flops_per_second", "sizes"),
    [
        # The first product that takes long is the last.
        ({512: 1e9}, [512]),
        ({512: 1e12, 1024: 2e12, 2048: 1e12}, [512, 1024, 2048]),
        # None does.
        (dict.fromkeys(throughput.SIZES, 1e15), list(throughput.SIZES)),
    ],
)
def test_the_peak_is_that_of_the_best_size(flops_per_second, sizes, monkeypatch):
    tried = []

    def product(size):
        tried.append(size)
        return 2 * size**3 / flops_per_second[size]

    monkeypatch.setattr(throughput, "least_seconds", lambda seconds: seconds)
    assert throughput.fastest(product) == pytest.approx(max(flops_per_second.values()))
    assert tried == sizes


def test_the_shortest_time_counts_after_the_warm_up(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: now.seconds)
    seconds = itertools.chain([0.001] * throughput.NUM_WARMUPS, [0.02, 0.01, 0.02], itertools.repeat(9.0))

    def act():
        now.seconds += next(seconds)

    assert throughput.least_seconds(act) == pytest.approx(0.01)
