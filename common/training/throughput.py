"""How much a run computed in a second: FLOP/s of a rank, their share of what its device can do at most, and tokens/s."""

import time

import numpy as np

from common import workloads
from common.backends import declaration_of
from common.model.families import training_flops
from common.trainer import by_rank

# Of the matrices, which grow until one product takes long: the best size depends on the device and the number of threads.
SIZES = (512, 1024, 2048, 4096, 8192)
LONG_SECONDS = 0.005
NUM_WARMUPS, SECONDS = 2, 0.05


def add_to_record(trainer, settings, record):
    """Adds the rates of a run that has trained to its record, and the peak of its devices. All ranks call this, off the clock."""
    model = workloads.workload_of(settings).model
    rate, num_tokens, num_flops = record.samples_per_second, model.tokens_per_sample, training_flops(model)
    peak = peak_flops_per_second(trainer, settings.precision)
    record.training_flops_per_sample, record.peak_flops_per_second = num_flops, peak
    # A resumed run may have trained nothing.
    if rate:
        # A server computes on no samples.
        of_rank = num_flops * rate / (trainer.ranks.size - declaration_of(record.backend).num_servers)
        record.flops_per_second_per_rank = of_rank
        record.share_of_peak = peak and of_rank / peak
        record.tokens_per_second = num_tokens and num_tokens * rate


def peak_flops_per_second(trainer, precision):
    """The mean over the ranks of what their devices reach in matrix products, all at the same time; None where it is not known."""
    product = trainer.describe_device().product
    trainer.sum(np.zeros(1))
    peaks = by_rank(trainer, fastest(lambda size: product(precision, size)) if product else 0.0)
    return float(peaks.mean()) if peaks.all() else None


def fastest(product):
    """Floating-point operations a second in the fastest product. `product(size)`: a function that multiplies square matrices and waits."""
    speeds = []
    for size in SIZES:
        seconds = least_seconds(product(size))
        speeds.append(2 * size**3 / seconds)
        if seconds > LONG_SECONDS:
            break
    return max(speeds)


def least_seconds(action):
    """The shortest time of an action over about SECONDS. Other processes make it longer, nothing makes it shorter."""
    for _ in range(NUM_WARMUPS):
        action()
    begun, seconds = time.perf_counter(), []
    while not seconds or time.perf_counter() - begun < SECONDS:
        action_begun = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - action_begun)
    return min(seconds)
