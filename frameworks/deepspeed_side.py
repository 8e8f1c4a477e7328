"""What DeepSpeed needs around its engine: its configuration, its start, and whole states out of and into its shards."""

import contextlib
import logging
import os

import deepspeed
import torch
from deepspeed.comm import comm
from deepspeed.utils import (
    safe_get_full_optimizer_state,
    safe_set_full_fp32_param,
    safe_set_full_optimizer_state,
    safe_set_local_fp32_param,
    safe_set_local_optimizer_state,
)

from common import workloads
from common.errors import UserError
from common.trainer import Communication, Observed
from frameworks import distributed_side, torch_side

# DeepSpeed's names for the collectives of common/account.py, and all that exchange anything in a step.
OPERATIONS = {"all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter"}
COLLECTIVES = {
    "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_into_tensor", "all_gather_coalesced", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "broadcast", "barrier",
}  # fmt: skip


def configuration(settings, ranks):
    """The configuration of DeepSpeed that makes these settings; whatever it would do else is switched off.

    DeepSpeed's `train_batch_size` is that of all ranks.
    """
    return {
        "train_batch_size": workloads.global_batch(settings, ranks.size),
        "train_micro_batch_size_per_gpu": workloads.local_batch(settings, ranks.size),
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": settings.zero_stage,
            # Stage 3 would keep parameters of up to 100,000 values whole on every rank, and so most of a small model.
            "stage3_param_persistence_threshold": 0,
        },
    }


def begin(settings, ranks, device):
    """Joins the ranks in a process group; MASTER_ADDR and MASTER_PORT are set. Raises UserError for what DeepSpeed refuses."""
    if settings.zero_stage == 0 and settings.precision == "fp64":
        raise UserError("DeepSpeed's stage 0 does not reduce float64 gradients; use --precision fp32, or --zero-stage 1, 2 or 3")
    if device.type != deepspeed.get_accelerator().device_name().partition(":")[0]:
        raise UserError(f"DeepSpeed has chosen {deepspeed.get_accelerator().device_name()}; set DS_ACCELERATOR={device.type}")
    # Its messages of every step and start would drown ours.
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # It would be compiled at its first use, for a minute, and by all ranks at once.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    os.environ |= {"RANK": str(ranks.rank), "WORLD_SIZE": str(ranks.size), "LOCAL_RANK": str(ranks.local_rank)}
    backend = "nccl" if device.type == "cuda" else "gloo"
    deepspeed.init_distributed(backend, auto_mpi_discovery=False, verbose=False)


def communication(device):
    """What DeepSpeed's communication is measured with."""
    return Communication(alone, observed, lambda num_bytes: distributed_side.plain_all_reduce(num_bytes, device))


@contextlib.contextmanager
def alone():
    """Within it DeepSpeed's collectives do nothing: its own no_sync refuses to step, and ZeRO's stages 2 and 3."""
    together = comm.cdb
    comm.cdb = Silent(together)
    yield
    comm.cdb = together


class Silent:
    """A communication backend of DeepSpeed whose collectives leave their tensors as they are."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return (lambda *_, **__: DONE) if name in COLLECTIVES else getattr(self.inner, name)


class Done:
    """The handle of a collective that has ended."""

    def wait(self):
        return True


DONE = Done()


def observed(train):
    """DeepSpeed's own log tells what was sent; its times, added up from call to call on CPUs, do not count."""
    comm.comms_logger.reset_data()
    deepspeed.comm.configure(enabled=True, prof_all=True)
    seconds, _ = distributed_side.collectives(train)
    deepspeed.comm.configure(enabled=False, prof_all=False)
    calls = {name: {size: calls[0] for size, calls in by_size.items()} for name, by_size in comm.comms_logger.comms_dict.items()}
    operations = {OPERATIONS.get(name, name): (sum(of.values()), sum(size * num for size, num in of.items())) for name, of in calls.items()}
    return Observed(seconds, operations, {"calls_by_bytes": calls})


def state(model, optimizer, with_slots):
    """As torch_side.state does, gathered from the shards of all ranks, which all have to call it."""
    if not sharded(optimizer):
        return torch_side.state(model, optimizer if with_slots else None)
    found = {}
    slots = slots_of(optimizer) if with_slots else {}
    for name, parameter in model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter]):
            whole = parameter.detach().clone()
        found[name] = torch_side.as_array(whole)
        for slot, value in slots.items():
            of_parameter = value if slot == "step" else safe_get_full_optimizer_state(parameter, slot).view_as(whole).to(whole)
            found[f"{torch_side.SLOTS[slot]}/{name}"] = torch_side.as_array(of_parameter)
    return found


@torch.no_grad()
def restore(model, optimizer, state):
    """As torch_side.restore does, into the shards of all ranks, which all have to call it after a first step."""
    if not sharded(optimizer):
        torch_side.restore(model, optimizer, state)
        return
    slots = slots_of(optimizer)
    for name, parameter in model.named_parameters():
        value = torch_side.as_tensor(state[name]).to(parameter.device)
        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
            parameter.copy_(value)
        put(parameter, value)
        for slot in slots:
            key = f"{torch_side.SLOTS[slot]}/{name}"
            if slot != "step":
                whole = torch_side.as_tensor(state[key]).to(value) if key in state else torch.zeros_like(value)
                put(parameter, whole, slot)
    if "step" in slots:
        taken = next((float(value) for name, value in state.items() if name.startswith(f"{torch_side.SLOTS['step']}/")), 0.0)
        for shard in optimizer.optimizer.state.values():
            shard["step"].fill_(taken)


def put(parameter, value, slot=None):
    """Writes a whole float32 master parameter, or a slot of it, into the shards that hold it."""
    value = value.float()
    if hasattr(parameter, "ds_tensor"):
        # Stage 3 cuts every parameter into equal parts, the last one padded, which DeepSpeed's own way to write whole ones forgets.
        size = parameter.ds_tensor.numel()
        padded = torch.nn.functional.pad(value.flatten(), (0, size * torch.distributed.get_world_size() - value.numel()))
        mine = padded.narrow(0, size * torch.distributed.get_rank(), size)
        if slot:
            safe_set_local_optimizer_state(parameter, mine, slot)
        else:
            safe_set_local_fp32_param(parameter, mine)
    elif slot:
        safe_set_full_optimizer_state(parameter, value, slot)
    else:
        safe_set_full_fp32_param(parameter, value)


def sharded(optimizer):
    """Whether an optimizer is one of ZeRO's, around a plain one."""
    return hasattr(optimizer, "optimizer")


def slots_of(optimizer):
    """The slots of this rank's first shard, by PyTorch's names for them."""
    return next(({slot: value for slot, value in shard.items() if value is not None} for shard in optimizer.optimizer.state.values()), {})
