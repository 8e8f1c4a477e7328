"""PyTorch's ZeroRedundancyOptimizer, and its communication."""

import contextlib

import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

from common.trainer import Communication
from frameworks.shared.pytorch import process_group
from frameworks.shared.replaced import replaced


def sharded(optimizer):
    """An optimizer like this one, each of whose ranks updates a part of the parameters and has the state of that part."""
    (group,) = optimizer.param_groups
    # As a view of one buffer, the part of a rank is broadcast at once.
    return ZeroRedundancyOptimizer(group["params"], type(optimizer), parameters_as_bucket_view=True, **optimizer.defaults)


def communication(model, optimizer, device):
    """How to measure its communication: DistributedDataParallel's, and a broadcast of each rank's part after the step."""
    of_ddp = process_group.communication_of_ddp(model, device)

    @contextlib.contextmanager
    def without_communication():
        with replaced((optimizer, "_sync_params", lambda: None)), of_ddp.without_communication():
            yield

    def profiled(train):
        profile = of_ddp.profiled(train)
        num_steps = profile.operations["all_reduce"][0] / profile.details["num_buckets_reduced"]
        # Each rank in turn sends its part to all others; the parts of all are the parameters.
        size_bytes = num_steps * process_group.size_of(model.parameters())
        return profile._replace(operations=profile.operations | {"broadcast": (num_steps * dist.get_world_size(), size_bytes)})

    return Communication(without_communication, profiled, of_ddp.all_reduce)
