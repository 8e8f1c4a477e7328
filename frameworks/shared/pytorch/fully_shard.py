"""PyTorch's FSDP2: how a model is sharded, its whole parameters and optimizer state, and its communication."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.optim import Optimizer

from common.config import Settings
from common.model import model_file, user_data
from common.trainer import Communication
from common.workloads import workload_of
from frameworks.shared.pytorch import modules, process_group, states, steps
from frameworks.shared.replaced import replaced

if TYPE_CHECKING:

    class ShardedModule(FSDPModule, nn.Module):
        """What fully_shard makes of a module."""


# The functions of torch.distributed that FSDP2 calls.
COLLECTIVES = {"all_gather_single": "all_gather", "reduce_scatter_single": "reduce_scatter", "all_reduce": "all_reduce"}


def layers_of(settings: Settings, module: nn.Module) -> list[nn.Module]:
    """Returns the layers that are sharded by themselves, without those that share parameters.

    All ranks gather each of them, so that none is one that a rank may leave out.
    """
    unused = workload_of(settings).model.unused_parameters
    left_out = {parameter for name, parameter in module.named_parameters() if name in unused}
    num_owners = model_file.num_owners(module)
    return [
        layer
        for layer in dict.fromkeys(modules.layers_of(settings, module))
        if set(layer.parameters()) - left_out and all(num_owners[id(parameter)] == 1 for parameter in layer.parameters())
    ]


def shard(module: nn.Module, layers: Sequence[nn.Module], settings: Settings, device: torch.device) -> None:
    """Shards the parameters of a module: those of each of its layers by themselves, and the rest.

    With --sharding keep they stay whole from the forward pass to the backward pass.
    """
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    # Before FSDP's own hook.
    module.register_forward_hook(copy_parameters)
    policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16 if settings.reduction == "bf16" else None)
    for submodule in (*layers, module):
        fully_shard(submodule, mesh=mesh, reshard_after_forward=settings.sharding != "keep", mp_policy=policy)


def copy_parameters(_: nn.Module, inputs: Any, outputs: Any) -> Any:
    """Copies what a model returns of its parameters, as for its loss: FSDP frees them after the forward pass."""

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        whole = tensor if tensor._base is None else tensor._base
        return tensor.clone() if isinstance(whole, nn.Parameter) else tensor

    return user_data.mapped(copied, outputs)


def optimizer_for(settings: Settings, module: Any) -> Optimizer:
    """Returns the optimizer of the settings for the shards of a module."""
    if workload_of(settings).model.unused_parameters:
        module.set_reduce_scatter_unused_params(True)
    optimizer = steps.leave_out_unused(steps.unfused(steps.optimizer_for(settings, module)), settings, dist.all_reduce)
    if workload_of(settings).model.takes_derivatives:
        # The loss may have a backward pass of its own, after which FSDP would free parameters that its gradient needs.
        module.set_reshard_after_forward(False)
        module.set_reshard_after_backward(False)
        optimizer.register_step_pre_hook(lambda *_: states.reshard(module))
    return optimizer


def parts(module: nn.Module) -> list[FSDPModule]:
    """Returns the modules of a model that are sharded by themselves."""
    return [submodule for submodule in module.modules() if isinstance(submodule, FSDPModule)]


def communication(model: "ShardedModule", optimizer: Optimizer, sharding: str | None) -> Communication:
    """Returns how to measure its communication: gathers of parameters, and the reduce-scatter of gradients."""
    states.reshard(model)
    shards = list(model.parameters())
    zeros = [torch.zeros_like(shard) for shard in shards]

    def update_shards(*_: object) -> None:
        # Without an exchange the whole parameters have the gradients. The optimizer updates the shards, as it does with one.
        for whole in model.parameters():
            whole.grad = None
        for shard, gradient in zip(shards, zeros, strict=True):
            shard.grad = gradient

    @contextlib.contextmanager
    def without_communication() -> Iterator[None]:
        for submodule in parts(model):
            submodule.unshard()
        exchange(model, False, False)
        hook = optimizer.register_step_pre_hook(update_shards)
        try:
            # The training loop calls it at each micro-batch.
            with replaced((model, "set_requires_gradient_sync", lambda _: None)):
                yield
        finally:
            hook.remove()
            exchange(model, True, sharding != "keep")
            states.reshard(model)
            optimizer.zero_grad()

    return process_group.communication_of_functions(COLLECTIVES, without_communication)


def exchange(model: FSDPModule, does: bool, reshards_after_forward: bool) -> None:
    """Sets whether gradients are exchanged and whole parameters freed after each pass."""
    model.set_requires_gradient_sync(does)
    model.set_reshard_after_backward(does)
    model.set_reshard_after_forward(reshards_after_forward)
