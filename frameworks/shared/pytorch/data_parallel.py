"""PyTorch's wrappers of a module for data parallelism: their GPUs and hooks, and the communication of what is built around them."""

import torch
import torch.distributed as dist
from torch._C._profiler import _RecordFunctionFast
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.model_averaging import utils

from common.errors import UserError
from common.trainer import Communication, ProfiledCommunication
from frameworks.shared.pytorch import mpi, process_group
from frameworks.shared.replaced import replaced

# PyTorch's minimum: DDP rebuilds its buckets after the first step.
NUM_PLAIN_STEPS = 2
# PyTorch's advice. Without it the gradients of a layer that are all 0 give 0/0.
EPSILON = 1e-8
# The profiler's name of all that PowerSGD does to a bucket.
POWER_SGD = "powersgd:bucket"


def problem(device):
    """Why DataParallel is of no use on `cpu` or `cuda` here; None if it is."""
    num_gpus = torch.cuda.device_count() if device == "cuda" else 0
    return None if num_gpus > 1 else f"with {num_gpus} GPUs DataParallel would only call the module"


def gpus(device):
    """The numbers of all GPUs, the one with the parameters first. Raises UserError where there are not several."""
    if reason := problem(device.type):
        raise UserError(f"{reason}; use single, or a node with several GPUs")
    return [device.index, *(index for index in range(torch.cuda.device_count()) if index != device.index)]


def communication_of_ddp(model, device, all_reduce=dist.all_reduce, replacements=()):
    """How to measure the communication of a DistributedDataParallel model that all-reduces its gradients as they are.

    `replacements`, as `replaced` takes them, leave out what a backend communicates beside it.
    """

    def without_communication():
        # Not in its no_sync, whose attribute the training loop sets at each micro-batch.
        return replaced((model, "forward", model.module.__call__), *replacements)

    def profiled(train):
        # By default DDP logs one step in 100.
        model._set_ddp_runtime_logging_sample_rate(1)
        seconds, num_calls, starts = process_group.collectives(train)
        details = model._get_ddp_logging_data()
        # One all-reduce per bucket.
        num_steps = num_calls["all_reduce"] / details["num_buckets_reduced"]
        size_bytes = num_steps * details["total_parameter_size_bytes"]
        return ProfiledCommunication(seconds, {"all_reduce": (num_calls["all_reduce"], size_bytes)}, details, starts)

    plain = process_group.plain_all_reduce
    return Communication(without_communication, profiled, lambda num_bytes: plain(num_bytes, device, all_reduce))


class State:
    """What a communication hook has sent, in calls and bytes, and what PowerSGD keeps from step to step."""

    def __init__(self, powersgd_rank):
        self.powersgd_rank = powersgd_rank
        self.num_calls = self.num_bytes = 0
        self.power_sgd = None

    def restart(self):
        """Forgets what PowerSGD keeps: factors of zeros, on which a run warms up, would stay 0."""
        self.power_sgd = None

    def of_power_sgd(self):
        """What PowerSGD keeps. Its random numbers are the same on all ranks and in all runs."""
        self.power_sgd = self.power_sgd or powerSGD_hook.PowerSGDState(
            None, self.powersgd_rank, start_powerSGD_iter=NUM_PLAIN_STEPS, orthogonalization_epsilon=EPSILON
        )
        return self.power_sgd

    def count(self, num_calls, num_elements, element_size):
        self.num_calls += num_calls
        self.num_bytes += num_elements * element_size


def over_mpi(state, bucket):
    """Averages in the type of the gradients over MPI.

    It blocks the backward pass. MPI makes progress only inside its calls, so that a hook that did not block would need a thread, and a
    thread a core of its own.
    """
    gradients = bucket.buffer()
    state.count(1, gradients.numel(), gradients.element_size())
    mpi.all_reduce(gradients.div_(dist.get_world_size()))
    done = torch.futures.Future()
    done.set_result(gradients)
    return done


def fp16(state, bucket):
    """Averages in float16."""
    state.count(1, bucket.buffer().numel(), torch.float16.itemsize)
    return default_hooks.fp16_compress_hook(None, bucket)


def bf16(state, bucket):
    """Averages in bfloat16; PyTorch's hook as it is called by its own name needs NCCL."""
    state.count(1, bucket.buffer().numel(), torch.bfloat16.itemsize)
    return default_hooks.bf16_compress_hook(None, bucket)


def powersgd(state, bucket):
    """Averages the factors P and Q of each matrix of gradients; all others as they are, together.

    It blocks the backward pass. PyTorch's hook starts the all-reduces of P and Q in Gloo's threads: those of one bucket and of the
    next would start in another order on each rank, and the ranks would hang.
    """
    gradients, power_sgd = bucket.buffer(), state.of_power_sgd()
    before = power_sgd.total_numel_after_compression
    # The profiler does not see what starts in Gloo's threads.
    with _RecordFunctionFast(POWER_SGD):
        averaged = powerSGD_hook.powerSGD_hook(power_sgd, bucket)
        averaged.wait()
    # Of P, of Q, and of the others, even where there are none.
    num_sent = power_sgd.total_numel_after_compression - before
    state.count(*((3, num_sent) if num_sent else (1, gradients.numel())), gradients.element_size())
    return averaged


# By --transport or --reduction.
HOOKS = {"mpi": over_mpi, "fp16": fp16, "bf16": bf16, "powersgd": powersgd}


def register_hook(model, settings, ranks, device):
    """Gives a DistributedDataParallel model the hook of the settings, if there is one, and returns its State."""
    if settings.transport == "mpi":
        mpi.begin(ranks, device)
    state, hook = State(settings.powersgd_rank), HOOKS.get(settings.transport or settings.reduction)
    if hook:
        model.register_comm_hook(state, hook)
    return state


def communication_of_hooks(trainer):
    """How to measure the communication of a trainer that has a DistributedDataParallel model and a State in `hook_state`."""
    state = trainer.hook_state
    all_reduce = mpi.all_reduce if trainer.transport == "mpi" else dist.all_reduce
    of_ddp = communication_of_ddp(trainer.model, trainer.device, all_reduce)

    def profiled(train):
        num_calls, num_bytes = state.num_calls, state.num_bytes
        profile = of_ddp.profiled(train)
        sent = (state.num_calls - num_calls, state.num_bytes - num_bytes)
        # Without a hook the bytes are those that DDP logs.
        return profile._replace(operations={"all_reduce": sent}) if state.num_calls else profile

    return of_ddp._replace(profiled=profiled)


def communication_of_zero_redundancy(model, optimizer, device):
    """How to measure ZeroRedundancyOptimizer's communication: DistributedDataParallel's, and broadcasts of each rank's part."""
    of_ddp = communication_of_ddp(model, device, replacements=[(optimizer, "_sync_params", lambda: None)])

    def profiled(train):
        profile = of_ddp.profiled(train)
        num_steps = profile.operations["all_reduce"][0] / profile.details["num_buckets_reduced"]
        # Each rank in turn sends its part to all others; the parts of all are the parameters.
        size_bytes = num_steps * process_group.size_of(model.parameters())
        return profile._replace(operations=profile.operations | {"broadcast": (num_steps * dist.get_world_size(), size_bytes)})

    return of_ddp._replace(profiled=profiled)


def average(optimizer):
    """Averages the parameters of a PostLocalSGDOptimizer once its ranks train locally; until then they are the same on all ranks."""
    if optimizer.averager.step > optimizer.averager.warmup_steps:
        utils.average_parameters_or_parameter_groups(optimizer.param_groups, optimizer.averager.process_group)


def restart(optimizer, gradients):
    """Counts the steps until the ranks train locally anew; `gradients` is the state of the hook."""
    gradients.iter = optimizer.averager.step = 0


def communication_of_post_local_sgd(model, optimizer, device):
    """How to measure post-local SGD's communication: DistributedDataParallel's at first, averages of the parameters later."""
    # No step of local training has been taken, so that no average is due at the end of an epoch either.
    local = (optimizer.averager, "step", 0), (optimizer.averager, "average_parameters", lambda params: None)
    of_ddp = communication_of_ddp(model, device, replacements=local)
    return process_group.communication_of_functions({"all_reduce": "all_reduce"}, of_ddp.without_communication, device)
