"""The formulas against published tables, with the inputs that were published only. launch/forecast/README.md has what comes out."""

import pytest

from launch.forecast.network.algorithms import Machine
from launch.forecast.network.hockney import Regime
from launch.forecast.scaling import growth
from launch.forecast.scaling.model import Exchange, evenly, overlapped_seconds

# Seconds at 1, 2, 4 and 8 GPUs, of a fixed problem.
TUTORIAL = {1: 30.4, 2: 24.2, 4: 19.8, 8: 17.9}

# Horovod, docs/benchmarks: servers of 4 Pascal GPUs and a network of 25 Gbit/s, batch 64 a GPU; images/s of one P100 with that batch from
# TensorFlow's benchmarks (May 2017); parameters of Szegedy et al. 2015, arXiv:1512.00567, as in Keras, and Simonyan and Zisserman 2014,
# arXiv:1409.1556. No latency was published: 20 µs. Inside a server: 10 GB/s (PCIe). Horovod's fusion buffer then: 64 MiB.
BATCH, FUSION = 64, 64 * 2**20
SERVERS = Machine(4, (Regime(0, 1e-5, 1e-10, 0.0),), (Regime(0, 2e-5, 8 / 25e9, 0.0),))
# {model: (images/s, bytes of the gradients)}
MODELS = {"Inception V3": (142, 4 * 23_851_784), "VGG-16": (154, 4 * 138_357_544)}


@pytest.mark.parametrize(("held", "error"), [(4, 0.066), (8, 0.022)])
def test_the_tutorials_times_are_what_gpus_divide_and_what_each_has_to_do(held, error):
    fitted = growth.inverse([(size, seconds) for size, seconds in TUTORIAL.items() if size < held])
    assert fitted(held) / TUTORIAL[held] - 1 == pytest.approx(error, abs=0.005)


# `error`: of the forecast with gradients that are ready evenly. VGG-16's largest layers are the last, and ready first.
@pytest.mark.parametrize(
    ("model", "num_ranks", "published", "error"),
    [("Inception V3", 128, 0.90, 0.06), ("Inception V3", 512, 0.90, 0.02), ("VGG-16", 128, 0.79, -0.07), ("VGG-16", 512, 0.68, -0.14)],
)
def test_horovods_published_efficiency_lies_between_no_overlap_and_all(model, num_ranks, published, error):
    images_per_second, num_bytes = MODELS[model]
    compute, (num_whole, rest) = BATCH / images_per_second, divmod(num_bytes, FUSION)
    buffers = [FUSION] * num_whole + [rest]

    def efficiency(exchanges):
        """Of weak scaling, on a ring, with NCCL's choice in Horovod at that time."""
        return compute / overlapped_seconds(compute, exchanges, "ring", num_ranks, SERVERS)

    none, everything = (efficiency([Exchange(share, size, "all_reduce") for size in buffers]) for share in (1.0, 0.0))
    forecast = efficiency(evenly(buffers, "all_reduce"))
    assert none < published < everything
    assert none < forecast < everything
    assert forecast / published - 1 == pytest.approx(error, abs=0.01)
