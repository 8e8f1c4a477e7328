"""The formulas against published tables, with the inputs that were published only. launch/forecast/README.md has what comes out."""

import pytest

from launch.forecast.network import algorithms
from launch.forecast.network.algorithms import Machine
from launch.forecast.network.hockney import Regime
from launch.forecast.scaling import growth, overlap
from launch.forecast.scaling.overlap import Exchange

# Seconds at 1, 2, 4 and 8 GPUs, of a fixed problem.
TUTORIAL = {1: 30.4, 2: 24.2, 4: 19.8, 8: 17.9}

# Horovod, docs/benchmarks: servers of 4 Pascal GPUs and a network of 25 Gbit/s, batch 64 a GPU; images/s of one P100 with that batch from
# TensorFlow's benchmarks (May 2017); parameters of Szegedy et al. 2015, arXiv:1512.00567, as in Keras, and Simonyan and Zisserman 2014,
# arXiv:1409.1556. No latency was published: 20 µs. Inside a server: 10 GB/s (PCIe). Horovod's fusion buffer then: 64 MiB.
BATCH, FUSION = 64, 64 * 2**20
IMAGES_PER_SECOND = {"Inception V3": 142, "VGG-16": 154}
NUM_BYTES = {"Inception V3": 4 * 23_851_784, "VGG-16": 4 * 138_357_544}
SERVERS = Machine(4, (Regime(0, 1e-5, 1e-10, 0.0),), (Regime(0, 2e-5, 8 / 25e9, 0.0),))
PUBLISHED = {("Inception V3", 128): 0.90, ("Inception V3", 512): 0.90, ("VGG-16", 128): 0.79, ("VGG-16", 512): 0.68}
# The relative error of the forecast with gradients that are ready evenly. VGG-16's largest layers are the last, and ready first.
ERRORS = {("Inception V3", 128): 0.06, ("Inception V3", 512): 0.02, ("VGG-16", 128): -0.07, ("VGG-16", 512): -0.14}


def efficiency(model, num_ranks, exchanges):
    """Of weak scaling, on a ring, with NCCL's choice in Horovod at that time."""
    compute = BATCH / IMAGES_PER_SECOND[model]
    takes = [algorithms.seconds("all_reduce", ("ring",), exchange.size_bytes, num_ranks, SERVERS) for exchange in exchanges]
    return compute / overlap.step_seconds(compute, exchanges, takes)


def buffers(model):
    """The sizes of the fusion buffers of a model's gradients."""
    whole, rest = divmod(NUM_BYTES[model], FUSION)
    return [FUSION] * whole + [rest]


def test_the_tutorials_times_are_what_gpus_divide_and_what_each_has_to_do():
    errors = {}
    for held in (4, 8):
        fitted = growth.inverse([(size, TUTORIAL[size]) for size in TUTORIAL if size < held])
        errors[held] = fitted(held) / TUTORIAL[held] - 1
    assert errors == pytest.approx({4: 0.066, 8: 0.022}, abs=0.005)


@pytest.mark.parametrize(("model", "num_ranks"), PUBLISHED)
def test_horovods_published_efficiency_lies_between_no_overlap_and_all(model, num_ranks):
    none = efficiency(model, num_ranks, [Exchange(1.0, size, "all_reduce") for size in buffers(model)])
    everything = efficiency(model, num_ranks, [Exchange(0.0, size, "all_reduce") for size in buffers(model)])
    evenly = efficiency(model, num_ranks, overlap.evenly(buffers(model), "all_reduce"))
    assert none < PUBLISHED[model, num_ranks] < everything
    assert none < evenly < everything
    assert evenly / PUBLISHED[model, num_ranks] - 1 == pytest.approx(ERRORS[model, num_ranks], abs=0.01)
