"""The speed of a training: FLOP/s of a rank, their share of the most that its device reaches, and tokens/s."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from common import workloads
from common.backends import declaration_of
from common.config import Settings, computed_precision
from common.model.families import training_flops
from common.record.definition import Record
from common.record.parts import Product
from common.trainer import Trainer, by_rank

# Of the matrices, which grow until one product takes long: the best size depends on the device and the number of threads.
SIZES = (512, 1024, 2048, 4096, 8192)
LONG_SECONDS = 0.005
NUM_WARMUPS, SECONDS = 2, 0.05
# The name of the product of a framework that computes by another one.
COMPUTES_BY = {"Keras": "TensorFlow"}
# The name of PyTorch's product with the library of --mkl-kernels fast.
FAST_MKL = "PyTorch with --mkl-kernels fast"


class Peak(NamedTuple):
    """The most floating-point operations a second in a matrix product, the name of what reached it, and the framework's share of it."""

    flops_per_second: float
    library: str
    framework_share: float


def add_to_record(trainer: Trainer, settings: Settings, record: Record) -> None:
    """Adds the speed of a run that has trained, and the peak of its devices, to its record. All ranks call this, off the clock."""
    model = workloads.workload_of(settings).model
    record.training_flops_per_sample = num_flops = training_flops(model)
    declaration, flops_per_second = declaration_of(record.backend), framework_flops_per_second(trainer, computed_precision(settings))
    peak = peak_of(COMPUTES_BY.get(declaration.framework, declaration.framework), flops_per_second, record.products or {})
    if peak:
        record.peak_flops_per_second, record.peak_library, record.framework_product_share = peak
    # A resumed run may have trained nothing.
    if samples_per_second := record.samples_per_second:
        # A server computes on no samples.
        num_computing = trainer.ranks.size - declaration.num_servers
        record.flops_per_second_per_rank = num_flops and num_flops * samples_per_second / num_computing
        record.share_of_peak = peak and record.flops_per_second_per_rank and record.flops_per_second_per_rank / peak.flops_per_second
        record.tokens_per_second = model.tokens_per_sample and model.tokens_per_sample * samples_per_second


def peak_of(framework: str, flops_per_second: float | None, products: Mapping[str, Product]) -> Peak | None:
    """Returns the Peak of a rank from the product of its framework, just measured, and those that its matrix has measured.

    It is None where the framework's product is not known, as for a rank with several GPUs.
    """
    if flops_per_second is None:
        return None
    speeds = {name: product.flops_per_second for name, product in products.items()}
    speeds[framework] = max(flops_per_second, speeds.get(framework, 0.0))
    fastest_library = max(speeds, key=lambda name: speeds[name])
    return Peak(speeds[fastest_library], fastest_library, flops_per_second / speeds[fastest_library])


def framework_flops_per_second(trainer: Trainer, precision: str) -> float | None:
    """Returns the mean over the ranks of what they reach in matrix products of their framework, all at the same time.

    It is None where that of a rank is not known.
    """
    product = trainer.describe_device().product
    trainer.sum(np.zeros(1))
    peaks = by_rank(trainer, fastest(lambda size: product(precision, size)) if product else 0.0)
    return float(peaks.mean()) if peaks.all() else None


def fastest(product: Callable[[int], Callable[[], object]]) -> float:
    """Returns the floating-point operations a second in the fastest product.

    `product(size)` returns a function that multiplies two square matrices and waits for the end.
    """
    speeds = []
    for size in SIZES:
        seconds = least_seconds(product(size))
        speeds.append(2 * size**3 / seconds)
        if seconds > LONG_SECONDS:
            break
    return max(speeds)


def least_seconds(action: Callable[[], object]) -> float:
    """Returns the shortest time of an action over about SECONDS. Other processes make it longer, nothing makes it shorter."""
    for _ in range(NUM_WARMUPS):
        action()
    begun, seconds = time.perf_counter(), []
    while not seconds or time.perf_counter() - begun < SECONDS:
        action_begun = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - action_begun)
    return min(seconds)
