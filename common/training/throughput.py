"""The speed of a training: FLOP/s of a rank, their share of the most that its device reaches, and tokens/s."""

import functools
import time
from collections.abc import Callable

import numpy as np

from common import workloads
from common.backends import declaration_of
from common.config import Settings, computed_precision
from common.process.ranks import by_rank
from common.record.definition import Record
from common.trainer import Trainer

# Of the matrices, which grow until one product takes long: the best size depends on the device and the number of threads.
SIZES = (512, 1024, 2048, 4096, 8192)
LONG_SECONDS = 0.005
NUM_WARMUPS, SECONDS = 2, 0.05
# The name of the product of a framework that computes by another one.
COMPUTES_BY = {"Keras": "TensorFlow"}
# The name of the product that a framework has beside its own.
ONEDNN = "oneDNN in PyTorch"

# Gives a function that multiplies two square matrices of a size, and waits for the end.
Product = Callable[[int], Callable[[], object]]


def add_to_record(trainer: Trainer, settings: Settings, record: Record) -> None:
    """Adds the speed of a run that has trained, and the peak of its devices, to its record. All ranks call this, off the clock."""
    model = workloads.workload_of(settings).model
    record.training_flops_per_sample = num_flops = model.training_flops()
    declaration = declaration_of(record.backend)
    framework = COMPUTES_BY.get(declaration.framework, declaration.framework)
    speeds = flops_per_second_by_library(trainer, framework, computed_precision(settings))
    if speeds:
        record.peak_library = max(speeds, key=lambda library: speeds[library])
        record.peak_flops_per_second = speeds[record.peak_library]
        record.framework_product_share = speeds[framework] / record.peak_flops_per_second
    # A resumed run may have trained nothing.
    if samples_per_second := record.samples_per_second:
        # A server computes on no samples.
        num_computing = trainer.ranks.size - declaration.num_servers
        record.flops_per_second_per_rank = num_flops and num_flops * samples_per_second / num_computing
        if speeds and record.flops_per_second_per_rank:
            record.share_of_peak = record.flops_per_second_per_rank / max(speeds.values())
        record.tokens_per_second = model.tokens_per_sample and model.tokens_per_sample * samples_per_second


def flops_per_second_by_library(trainer: Trainer, framework: str, precision: str) -> dict[str, float]:
    """Returns the mean over the ranks of what they reach in matrix products, all at the same time, by the framework and by oneDNN.

    It is empty where that of a rank is not known, as for a rank with several GPUs.
    """
    device = trainer.describe_device()
    products: dict[str, Callable[[int], Callable[[], object]] | None] = {
        framework: device.product and functools.partial(device.product, precision)
    }
    if device.onednn_product and precision == "fp32":
        products[ONEDNN] = device.onednn_product
    trainer.sum(np.zeros(1))
    speeds = {library: by_rank(trainer, fastest(product) if product else 0.0) for library, product in products.items()}
    return {library: float(of_ranks.mean()) for library, of_ranks in speeds.items()} if all(map(np.all, speeds.values())) else {}


def fastest(product: Product) -> float:
    """Returns the floating-point operations a second in the fastest size of a product."""
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
