"""Configuration and initialization of DeepSpeed, and unsharded states from and to its shards."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, cast

import deepspeed
import numpy as np
import torch
from deepspeed import utils
from deepspeed.comm import comm
from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus
from torch import nn

from common.config import Settings
from common.errors import UserError
from common.ranks.launcher_variables import Ranks
from common.ranks.meeting import agree_on_master
from common.record.parts import Transport
from common.trainer import Communication, ProfiledCommunication, TensorBytes
from frameworks.shared.pytorch import devices, process_group, profiler, states, tensor_bytes
from frameworks.shared.replaced import Replacement, replaced

# DeepSpeed does not state the types of its engine's attributes, nor of its optimizers': a plain one in stage 0, else a ZeRO optimizer.
Engine = Any
ZeroOptimizer = Any
# DeepSpeed's names -> those of common/training/step_breakdown.py; and all collectives that occur in a step.
OPERATIONS = {"all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter"}
COLLECTIVES = {
    "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_into_tensor", "all_gather_coalesced", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "broadcast", "barrier",
}  # fmt: skip


def device_problem(device: str) -> str | None:
    """Returns why DeepSpeed cannot train on `cpu` or `cuda` here; None if it can."""
    chosen: Any = deepspeed.get_accelerator()
    accelerator = chosen.device_name().partition(":")[0]
    mismatch = f"DeepSpeed has chosen {accelerator}; set DS_ACCELERATOR={device}" if accelerator != device else None
    return devices.device_problem(device) or mismatch


def begin(settings: Settings, ranks: Ranks, device: torch.device) -> Transport:
    """Initializes the process group and returns its transport, nccl or gloo. Raises UserError for unsupported settings."""
    if settings.zero_stage == 0 and settings.precision == "fp64":
        raise UserError("ZeRO stage 0 does not all-reduce float64 gradients; use --precision fp32, or --zero-stage 1, 2 or 3")
    if problem := device_problem(device.type):
        raise UserError(problem)
    # Suppresses the messages of every step.
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # This extension would be compiled at first use, by all ranks at once, for a minute.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    agree_on_master(ranks)
    os.environ |= {"RANK": str(ranks.rank), "WORLD_SIZE": str(ranks.size), "LOCAL_RANK": str(ranks.local_rank)}
    backend = "nccl" if device.type == "cuda" else "gloo"
    # DeepSpeed takes a process group that it finds.
    if not torch.distributed.is_initialized():
        process_group.join(backend, ranks)
    deepspeed.init_distributed(backend, auto_mpi_discovery=False, verbose=False)
    return backend


def expect_parameters(module: nn.Module) -> None:
    """Raises UserError for a parameter without a dimension: DeepSpeed broadcasts it as bytes, which it cannot be seen as."""
    if scalar := next((name for name, parameter in module.named_parameters() if parameter.dim() == 0), None):
        raise UserError(f"DeepSpeed does not take {scalar}, a parameter without a dimension; give it the shape (1,)")


def partition(module: nn.Module, configuration: Mapping[str, Any]) -> None:
    """Shards a module's parameters for stage 3, with zeros as padding; no effect for the other stages.

    deepspeed.initialize would pass the module's dtype to zero.Init (DeepSpeed 0.19.8, partition_parameters.py, _set_dtype). With it,
    zero.Init rejects float64 on processors with float16 and substitutes bfloat16 on others; with a configuration and no dtype
    it does neither. Parameters keep their dtype in either case.
    """
    if configuration["zero_optimization"]["stage"] == 3:
        deepspeed.zero.Init(module=module, config_dict_or_path=configuration)
        parameters: list[Any] = list(module.parameters())
        for parameter in parameters:
            # zero.Init leaves the padding uninitialized, and it counts in the norms that an optimizer of the user's own may take.
            num_before = torch.distributed.get_rank() * parameter.partition_numel()
            parameter.ds_tensor[max(parameter.ds_numel - num_before, 0) :].zero_()


def communication(engine: Engine) -> Communication:
    """Returns how to measure DeepSpeed's communication.

    Without it collectives do nothing, and gradients and, for stage 3, parameters are not packed. DeepSpeed's own no_sync supports neither
    optimizer steps nor stages 2 and 3.
    """
    return Communication(lambda: replaced(*without_packing(engine), (comm, "cdb", Silent(comm.cdb))), profiled)


def without_packing(engine: Engine) -> list[Replacement]:
    """Returns what replaces the packing of an engine (DeepSpeed 0.19.8). All ranks call this."""
    optimizer, parameters = engine.optimizer, list(engine.module.parameters())
    if not sharded(optimizer):
        return [(engine, "enable_backward_allreduce", False)]
    if engine.zero_optimization_stage() < 3:
        # The optimizer then takes its shard from the gradients as they are.
        return [(optimizer, "reduce_independent_p_g_buckets_and_remove_grads", lambda *_: None)]
    with deepspeed.zero.GatheredParameters(parameters):
        whole = {parameter: parameter.detach().clone() for parameter in parameters}
    return [
        (optimizer, "reduce_independent_p_g_buckets_and_remove_grads", lambda parameter: keep_own_gradient(optimizer, parameter)),
        *((parameter, "all_gather_coalesced", lambda gathered, **_: Kept(gathered, whole)) for parameter in parameters),
    ]


def keep_own_gradient(optimizer: ZeroOptimizer, parameter: Any) -> None:
    """Does what stage 3 does with a gradient after its reduce-scatter: keeps this rank's shard and frees the rest."""
    size = parameter.partition_numel()
    shard = parameter.grad.flatten()[size * torch.distributed.get_rank() :][:size]
    optimizer.partition_grads([parameter], [shard])


class Kept:
    """The handle of an all-gather of parameters that have been gathered before: `whole` has their unsharded values."""

    def __init__(self, parameters: Iterable[Any], whole: Mapping[Any, torch.Tensor]) -> None:
        self.parameters = list(parameters)
        for parameter in parameters:
            parameter.data = whole[parameter]
            parameter.ds_status = ZeroParamStatus.INFLIGHT

    def wait(self, **_: object) -> None:
        # DeepSpeed waits once for each parameter, and may have released another by then.
        while self.parameters:
            self.parameters.pop().ds_status = ZeroParamStatus.AVAILABLE


class Silent:
    """A communication backend of DeepSpeed whose collectives do not change their tensors."""

    def __init__(self, inner: object) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        completed = SimpleNamespace(wait=lambda: True)
        return (lambda *_, **__: completed) if name in COLLECTIVES else getattr(self.inner, name)


def profiled(train: Callable[[], None]) -> ProfiledCommunication:
    """Counts calls and bytes from DeepSpeed's communication log. Its times are not used: on CPUs they accumulate from call to call."""
    comm.comms_logger.reset_data()
    deepspeed.comm.configure(enabled=True, prof_all=True)
    seconds, _ = profiler.collectives(train)
    deepspeed.comm.configure(enabled=False, prof_all=False)
    calls = {str(name): {size: calls[0] for size, calls in by_size.items()} for name, by_size in comm.comms_logger.comms_dict.items()}
    operations = {OPERATIONS.get(name, name): (sum(of.values()), sum(size * num for size, num in of.items())) for name, of in calls.items()}
    return ProfiledCommunication(seconds, operations)


def memory_at_points(model: nn.Module, optimizer: ZeroOptimizer) -> AbstractContextManager[dict[str, TensorBytes]]:
    """Does as tensor_bytes.at_points. The master parameters, and the gradients that update them, are flat tensors of this rank's shard."""
    if not sharded(optimizer):
        return tensor_bytes.at_points(model, optimizer)
    inner = optimizer.optimizer

    def count() -> TensorBytes:
        parameters: list[Any] = list(model.parameters())
        shards = [parameter.ds_tensor for parameter in parameters if hasattr(parameter, "ds_tensor")]
        masters = [master for group in inner.param_groups for master in group["params"]]
        gradients = [gradient for group in optimizer.averaged_gradients.values() for gradient in group or ()]
        # Stage 3's alone (DeepSpeed 0.19.8).
        buffer = getattr(optimizer, "grad_partitions_flat_buffer", None)
        updating = [gradient for gradient in (buffer, *(master.grad for master in masters)) if gradient is not None]
        return tensor_bytes.bytes_of([*parameters, *shards], inner, [*gradients, *updating], masters)

    return tensor_bytes.at_points(model, inner, count)


def state(model: nn.Module, optimizer: ZeroOptimizer, with_optimizer_state: bool) -> dict[str, np.ndarray]:
    """Does as states.gather, from the shards of all ranks. All ranks call this."""
    if not sharded(optimizer):
        return states.gather(model, optimizer if with_optimizer_state else None)
    arrays = {}
    optimizer_state = shard_state(optimizer) if with_optimizer_state else {}
    for name, parameter in model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter]):
            whole = parameter.detach().clone()
        arrays[name] = states.as_array(name, whole, model)
        # DeepSpeed keeps nothing of a parameter that is not trained.
        for key, value in optimizer_state.items() if parameter.requires_grad else ():
            # It is there, as the shard has it.
            is_scalar = key in states.SCALAR_STATE
            full = value if is_scalar else cast("torch.Tensor", utils.safe_get_full_optimizer_state(parameter, key))
            whole_state = full if is_scalar else full.view_as(whole).to(whole)
            arrays[f"{states.OPTIMIZER_STATE[key]}/{name}"] = states.as_array(name, whole_state, model)
    return arrays | states.gather_buffers(model)


@torch.no_grad()
def restore(model: nn.Module, optimizer: ZeroOptimizer, state: Mapping[str, np.ndarray]) -> None:
    """Does as states.restore, into the shards of all ranks. All ranks call this, after a first step."""
    if not sharded(optimizer):
        states.restore(model, optimizer, state)
        return
    states.restore_buffers(model, state)
    optimizer_state = shard_state(optimizer)
    for name, parameter in model.named_parameters():
        value = states.as_tensor(name, state[name], model).to(parameter.device)
        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
            parameter.copy_(value)
        if not parameter.requires_grad:
            continue
        put(parameter, value)
        for key in optimizer_state:
            in_state = f"{states.OPTIMIZER_STATE[key]}/{name}"
            if key not in states.SCALAR_STATE:
                whole = states.as_tensor(name, state[in_state], model).to(value) if in_state in state else torch.zeros_like(value)
                put(parameter, whole, key)
    for key in optimizer_state.keys() & states.SCALAR_STATE.keys():
        in_state = f"{states.OPTIMIZER_STATE[key]}/"
        scalar = next((float(value) for name, value in state.items() if name.startswith(in_state)), states.SCALAR_STATE[key])
        for shard in optimizer.optimizer.state.values():
            shard[key].fill_(scalar)


def put(parameter: Any, value: torch.Tensor, key: str | None = None) -> None:
    """Writes an unsharded float32 master parameter, or its optimizer state `key`, into its shards."""
    value = value.float()
    if hasattr(parameter, "ds_tensor"):
        # Stage 3 pads parameters to equal shards, which DeepSpeed's safe_set_full_* functions do not account for.
        size = parameter.ds_tensor.numel()
        padded = torch.nn.functional.pad(value.flatten(), (0, size * torch.distributed.get_world_size() - value.numel()))
        shard = padded.narrow(0, size * torch.distributed.get_rank(), size)
        if key:
            utils.safe_set_local_optimizer_state(parameter, shard, key)
        else:
            utils.safe_set_local_fp32_param(parameter, shard)
    elif key:
        utils.safe_set_full_optimizer_state(parameter, value, key)
    else:
        utils.safe_set_full_fp32_param(parameter, value)


def sharded(optimizer: ZeroOptimizer) -> bool:
    """Returns whether an optimizer is a ZeRO optimizer that wraps a plain one."""
    return hasattr(optimizer, "optimizer")


def shard_state(optimizer: ZeroOptimizer) -> dict[str, Any]:
    """Returns, by PyTorch's keys, the optimizer state of this rank's first shard.

    Links the state of all groups of parameters to these. DeepSpeed does so when the first group alone has been updated (0.19.8,
    stage_1_and_2.py, _optimizer_step).
    """
    if hasattr(optimizer, "_hp_optimizer_states_linked"):
        optimizer._hp_optimizer_states_linked = False
        optimizer._lazy_init_hp_params_optimizer_state()
    return next(({key: value for key, value in shard.items() if value is not None} for shard in optimizer.optimizer.state.values()), {})
