"""The speed of the machine and of a training: how fast the machine is just before and after it, then the FLOP/s
of a rank, their share of the most that its device reaches, and tokens/s. All of it is measured off the clock.
"""

import functools
import time
from collections.abc import Callable

import numpy as np

from common import workloads
from common.backends import declaration_of
from common.config import Settings
from common.declarations import COMPUTES_BY
from common.ranks.launcher_variables import by_rank
from common.record.definition import Record
from common.record.parts import MachineNoise
from common.trainer import Trainer

PRODUCT_SIZE = 384
# Larger copies are decided by where their pages happen to lie: on a quiet machine they varied by a factor of three.
COPY_BYTES = 2**21
NUM_WARMUPS = 20
KERNEL_SECONDS, SLICE_SECONDS = 0.15, 0.01
# Of the matrices, which grow until one product takes long: the best size depends on the device and the number of threads.
PEAK_SIZES = (512, 1024, 2048, 4096, 8192)
LONG_PRODUCT_SECONDS = 0.005
NUM_PEAK_WARMUPS, PEAK_SECONDS = 2, 0.05
# The name of the product that a framework has beside its own.
ONEDNN = "oneDNN in PyTorch"

# Gives a function that multiplies two square matrices of a size, and waits for the end.
Product = Callable[[int], Callable[[], object]]


def machine_noise(before: np.ndarray, after: np.ndarray) -> MachineNoise:
    """Returns the speed of the slowest rank, of two measurements of `speeds_by_rank`."""
    return MachineNoise(*np.stack([before.min(axis=1), after.min(axis=1)], axis=1).tolist())


def speeds_by_rank(trainer: Trainer) -> np.ndarray:
    """Measures how fast each rank is just now; all ranks measure at the same time, each on its own cores.

    The rows are floating point operations a second in a product of matrices, and bytes a second in a copy.
    """
    trainer.sum(np.zeros(1))
    return np.array([by_rank(trainer, speed) for speed in (product_speed(), copy_speed())])


def product_speed(seconds: float = KERNEL_SECONDS) -> float:
    """Measures the floating point operations a second in products of matrices."""
    left, out = np.ones((PRODUCT_SIZE, PRODUCT_SIZE), np.float32), np.empty((PRODUCT_SIZE, PRODUCT_SIZE), np.float32)
    return 2 * PRODUCT_SIZE**3 * repeated(lambda: np.matmul(left, left, out), seconds)


def copy_speed(seconds: float = KERNEL_SECONDS) -> float:
    """Measures the bytes a second, read and written, in a copy."""
    source, target = np.ones(COPY_BYTES, np.uint8), np.ones(COPY_BYTES, np.uint8)
    return 2 * COPY_BYTES * repeated(lambda: np.copyto(target, source), seconds)


def repeated(action: Callable[[], object], seconds: float) -> float:
    """Measures how many times a second `action` runs: the median of slices of about SLICE_SECONDS, over about `seconds`."""
    # The first calls, which touch memory and start threads, are not measured.
    for _ in range(NUM_WARMUPS):
        action()
    begun = time.perf_counter()
    rates: list[float] = []
    while time.perf_counter() - begun < seconds:
        num_calls, slice_begun = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - slice_begun) < SLICE_SECONDS:
            action()
            num_calls += 1
        rates.append(num_calls / elapsed)
    return float(np.median(rates))


def add_throughput(trainer: Trainer, settings: Settings, record: Record) -> None:
    """Adds the speed of a run that has trained, and the peak of its devices, to its record. All ranks call this, off the clock."""
    model = workloads.workload_of(settings).model
    record.training_flops_per_sample = num_flops = model.training_flops()
    declaration = declaration_of(record.backend)
    framework = COMPUTES_BY.get(declaration.framework, declaration.framework)
    speeds = flops_per_second_by_library(trainer, framework, settings.precision)
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
    for size in PEAK_SIZES:
        seconds = least_seconds(product(size))
        speeds.append(2 * size**3 / seconds)
        if seconds > LONG_PRODUCT_SECONDS:
            break
    return max(speeds)


def least_seconds(action: Callable[[], object]) -> float:
    """Returns the shortest time of an action over about PEAK_SECONDS. Other processes make it longer, nothing makes it shorter."""
    for _ in range(NUM_PEAK_WARMUPS):
        action()
    begun, seconds = time.perf_counter(), []
    while not seconds or time.perf_counter() - begun < PEAK_SECONDS:
        action_begun = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - action_begun)
    return min(seconds)
