"""What backends on torch.distributed share: sums over the ranks, and what their communication is measured with."""

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from common.trainer import Communication, Observed


def summed(values, device):
    """The float64 NumPy array added up over all ranks."""
    total = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return total.cpu().numpy()


def communication_of_ddp(model, device):
    """What the communication of a DistributedDataParallel is measured with."""

    def observed(train):
        # It logs one step in a hundred by itself.
        model._set_ddp_runtime_logging_sample_rate(1)
        seconds, num_calls = collectives(train)
        details = model._get_ddp_logging_data()
        # A bucket is one call, and nothing else is.
        num_steps = num_calls / details["num_buckets_reduced"]
        return Observed(seconds, {"all_reduce": (num_calls, num_steps * details["total_parameter_size_bytes"])}, details)

    return Communication(model.no_sync, observed, lambda num_bytes: plain_all_reduce(num_bytes, device))


def collectives(train):
    """(seconds in which a collective ran, number of collectives) while train() runs, as PyTorch's profiler sees them."""
    # What knows its names belongs to the tracing of runs; every start would be longer by its import.
    from launch.trace import sources

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(activities=activities) as profiler:
        train()
    spans = [(one.time_range.start, one.time_range.end) for one in profiler.events() if sources.is_collective(one.name)]
    return covered(spans) / 1e6, len(spans)


def covered(spans):
    """The length of what (start, end) cover together."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def plain_all_reduce(num_bytes, device):
    """A function that all-reduces a buffer of zeros, and returns when that is done."""
    buffer = torch.zeros(num_bytes // 4, device=device)

    def all_reduce():
        dist.all_reduce(buffer)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return all_reduce
