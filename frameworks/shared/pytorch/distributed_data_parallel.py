"""PyTorch's DistributedDataParallel: its buffers and hooks, and the communication of what is built around it, such as post-local SGD."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.model_averaging import utils
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from common.config import Settings
from common.trainer import Communication, ProfiledCommunication
from common.workloads import workload_of
from frameworks.shared.pytorch import mpi_tensors, process_group, profiler, states
from frameworks.shared.replaced import Replacement, replaced

if TYPE_CHECKING:
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

# Such as gloo:all_reduce and ncclDevKernel_AllReduce_Sum_f32_RING_LL in a trace; RCCL has one kernel for all, ncclDevKernel_Generic_4.
ALL_REDUCE = re.compile("all_?reduce|kernel_generic", re.IGNORECASE)


def options_for(settings: Settings, module: nn.Module) -> dict[str, Any]:
    """Returns DDP's options by which rank 0's buffers are broadcast at every step, and by which it looks for unused parameters.

    Both take time, so that only models that need them have them: DDP would broadcast constant tables too. PyTorch 2.11 has an older name.
    """
    parameters = inspect.signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in parameters else "broadcast_buffers"
    unused = {"find_unused_parameters": True} if workload_of(settings).model.unused_parameters else {}
    return {name: bool(states.buffers_of(module))} | unused


def communication_of_ddp(
    model: DistributedDataParallel,
    names: Mapping[str, str] = process_group.ALL_REDUCE,
    owner: ModuleType = dist,
    replacements: Sequence[Replacement] = (),
) -> Communication:
    """Returns how to measure the communication of a DistributedDataParallel model, and of what goes through functions of `owner`.

    `names` as in process_group.counted. `replacements`, as `replaced` takes them, leave out what a backend communicates beside the model.
    """

    def without_communication() -> AbstractContextManager[None]:
        # Not in its no_sync, whose attribute the training loop sets at each micro-batch.
        return replaced((model, "forward", model.module.__call__), *replacements)

    def profiled(train: Callable[[], None]) -> ProfiledCommunication:
        # By default DDP logs one step in 100.
        model._set_ddp_runtime_logging_sample_rate(1)
        broadcast, broadcast_sizes = model._distributed_broadcast_coalesced, []

        def counting(buffers: Sequence[torch.Tensor], *arguments: Any, **settings: Any) -> None:
            broadcast_sizes.append(process_group.size_of(buffers))
            broadcast(buffers, *arguments, **settings)

        counting_broadcasts = replaced((model, "_distributed_broadcast_coalesced", counting))
        with process_group.counted(names, owner) as counted, counting_broadcasts:
            seconds, names_in_trace = profiler.collectives(train)
        details = model._get_ddp_logging_data()
        # One all-reduce per bucket. Without a hook DDP calls no function in Python.
        num_calls = sum(ALL_REDUCE.search(name) is not None for name in names_in_trace)
        num_steps = num_calls / details["num_buckets_reduced"]
        operations = {"all_reduce": (num_calls, num_steps * details["total_parameter_size_bytes"])} | counted
        if broadcast_sizes:
            # The buffers of each type are broadcast together.
            num_types = len({buffer.dtype for buffer in model.modules_buffers})
            num_others, size_bytes = operations.get("broadcast", (0, 0))
            operations["broadcast"] = num_others + num_types * len(broadcast_sizes), size_bytes + sum(broadcast_sizes)
        return ProfiledCommunication(seconds, operations)

    return Communication(without_communication, profiled)


# PyTorch reads the annotations of a hook, and refuses others than these.
def over_mpi(_: object, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Averages in the type of the gradients over MPI.

    It blocks the backward pass. MPI makes progress only inside its calls, so that a hook that did not block would need a thread, and a
    thread a core of its own.
    """
    gradients = bucket.buffer()
    mpi_tensors.all_reduce(gradients.div_(dist.get_world_size()))
    future: Future[torch.Tensor] = Future()
    future.set_result(gradients)
    return future


def bf16(_: object, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Averages in bfloat16. Registered by itself, PyTorch's hook would need NCCL."""
    # PyTorch takes None for all ranks.
    return default_hooks.bf16_compress_hook(None, bucket)  # pyright: ignore[reportArgumentType]


# The hooks by --transport or --reduction.
HOOKS = {"mpi": over_mpi, "fp16": default_hooks.fp16_compress_hook, "bf16": bf16}


def register_hook(model: DistributedDataParallel, settings: Settings) -> None:
    """Gives a model the hook of the settings, if there is one."""
    if hook := HOOKS.get(settings.transport or settings.reduction or ""):
        model.register_comm_hook(None, hook)


def average(optimizer: "PostLocalSGDOptimizer") -> None:
    """Averages the parameters of a PostLocalSGDOptimizer once its ranks train locally; until then they are the same on all ranks."""
    # As frameworks/post_local_sgd.py makes it.
    averager = cast("PeriodicModelAverager", optimizer.averager)
    if averager.step > averager.warmup_steps:
        utils.average_parameters_or_parameter_groups(optimizer.param_groups, averager.process_group)


def restart(optimizer: "PostLocalSGDOptimizer", gradients: "PostLocalSGDState") -> None:
    """Counts the steps until the ranks train locally anew; `gradients` is the state of the hook."""
    gradients.iter = optimizer.averager.step = 0


def communication_of_post_local_sgd(model: DistributedDataParallel, optimizer: "PostLocalSGDOptimizer") -> Communication:
    """Returns how to measure post-local SGD's communication: DistributedDataParallel's at first, averages of the parameters later."""
    # No step of local training has been taken, so that no average is due at the end of an epoch either.
    local = (optimizer.averager, "step", 0), (optimizer.averager, "average_parameters", lambda params: None)
    of_ddp = communication_of_ddp(model, replacements=local)
    return process_group.communication_of_functions(process_group.ALL_REDUCE, of_ddp.without_communication)
