"""Shared by the backends on torch.distributed: sums over ranks and communication measurements."""

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from common.trainer import Communication, ProfiledCommunication
from frameworks.shared import mpi


def summed(values, device):
    """Sum-all-reduce of a float64 NumPy array."""
    total = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return total.cpu().numpy()


def communication_of_ddp(model, device, transport):
    """How to measure the communication of a DistributedDataParallel model, whose communication hook uses MPI if `transport` is mpi."""
    all_reduce = mpi.all_reduce if transport == "mpi" else dist.all_reduce

    def profiled(train):
        # By default DDP logs one step in 100.
        model._set_ddp_runtime_logging_sample_rate(1)
        seconds, num_calls = collectives(train)
        details = model._get_ddp_logging_data()
        # One all-reduce per bucket.
        num_steps = num_calls / details["num_buckets_reduced"]
        return ProfiledCommunication(seconds, {"all_reduce": (num_calls, num_steps * details["total_parameter_size_bytes"])}, details)

    return Communication(model.no_sync, profiled, lambda num_bytes: plain_all_reduce(num_bytes, device, all_reduce))


def collectives(train):
    """(seconds in which a collective ran, number of collectives) during train(), from PyTorch's profiler."""
    # Imported here to keep the start of every run short.
    from common.tracing import sources

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(activities=activities) as profiler:
        train()
    spans = [(one.time_range.start, one.time_range.end) for one in profiler.events() if sources.is_collective(one.name)]
    return covered(spans) / 1e6, len(spans)


def covered(spans):
    """The length of the union of (start, end) intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def plain_all_reduce(num_bytes, device, all_reduce=dist.all_reduce):
    """A function that all-reduces a buffer of `num_bytes` and waits for completion."""
    buffer = torch.zeros(num_bytes // 4, device=device)

    def reduce():
        all_reduce(buffer)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return reduce
