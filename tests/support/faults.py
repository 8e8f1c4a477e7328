"""Faults that a test injects into a run, and what it changes otherwise: functions of the module of a backend, or of a library.

A fair comparison must catch each fault. tests/support/contract.py has those of each backend; tests/support/fault_injection.py runs them.
"""

import contextlib
import itertools
import os
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from common import workloads
from common.data import datasets, sharding
from common.model import weights
from common.ranks.launcher_variables import from_environment
from common.training import loop, step_breakdown
from frameworks.shared.replaced import replaced
from tests.support import small_models


class Faults(NamedTuple):
    """How a backend is broken: without its all-reduce, or whatever it exchanges instead, and with gradients that are too large."""

    no_all_reduce: Callable
    summed_gradients: Callable


# What is replaced until the run ends.
REPLACED = contextlib.ExitStack()


def replace(owner, name, value):
    """Sets an attribute until the run ends."""
    REPLACED.enter_context(replaced((owner, name, value)))


def change_result(owner, name, change):
    """Until the run ends a function returns change(its result)."""
    function = getattr(owner, name)
    replace(owner, name, lambda *arguments, **settings: change(function(*arguments, **settings)))


# Of PyTorch's backends


def infinite_gradient(backend):
    """In the fifth step of training the gradients are infinite, though the loss is finite."""
    import torch

    class Infinite(torch.autograd.Function):
        @staticmethod
        def forward(_, loss):
            return loss.clone()

        @staticmethod
        def backward(_, gradient):
            return gradient * float("inf")

    from frameworks.shared.pytorch.modules import Criterion

    plain, calls = Criterion.loss, itertools.count(1)

    def weighted_loss(*arguments):
        loss = plain(*arguments)
        return Infinite.apply(loss) if next(calls) == loop.NUM_WARMUP_STEPS + 5 else loss

    replace(Criterion, "loss", weighted_loss)


def all_reduced(tensor):
    from torch import distributed

    distributed.all_reduce(tensor)
    return tensor


def reduce_buckets(backend, reduce=all_reduced):
    """DistributedDataParallel reduces a bucket of gradients by reduce(their tensor): by default it adds them up."""

    def hook(_, bucket):
        done = backend.steps.torch.futures.Future()
        done.set_result(reduce(bucket.buffer()))
        return done

    def hooked(model):
        model.register_comm_hook(None, hook)
        return model

    change_result(backend, "DistributedDataParallel", hooked)


def ddp_without_all_reduce(backend):
    def alone(module, **_):
        module.register_comm_hook = lambda *_: None
        return module

    replace(backend, "DistributedDataParallel", alone)


def multiplied_gradients(backend):
    """The optimizer is given the gradients times the number of ranks."""

    def multiply(optimizer, *_):
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad = parameter.grad * from_environment().size

    def multiplying(optimizer):
        optimizer.register_step_pre_hook(multiply)
        return optimizer

    change_result(backend.steps, "optimizer_for", multiplying)


def by_hand_without_all_reduce(backend):
    replace(backend.Trainer, "average_gradients", lambda _: None)


def by_hand_summed(backend):
    unpack = backend.vector_to_parameters
    replace(backend, "vector_to_parameters", lambda vector, parts: unpack(vector * from_environment().size, parts))


def without_average_of_weights(backend):
    replace(backend.Trainer, "average_weights", lambda _: None)


def post_local_sgd_without(backend):
    replace(backend.distributed_data_parallel.utils, "average_parameters", lambda *_: None)


def post_local_sgd_summed(backend):
    average = backend.distributed_data_parallel.utils.average_parameters

    def summed(parameters, group):
        averaged = list(parameters)
        average(iter(averaged), group)
        for parameter in averaged:
            parameter.data *= group.size()

    replace(backend.distributed_data_parallel.utils, "average_parameters", summed)


def server_without_updates(backend):
    replace(backend.asynchronous_sgd, "update", lambda *_: None)


def server_summed(backend):
    update = backend.asynchronous_sgd.update
    replace(backend.asynchronous_sgd, "update", lambda *arguments: update(*arguments[:3], 1))


def fsdp_without_all_reduce(backend):
    def shard_of_own(output, input, group, **_):
        output.copy_(input.chunk(group.size())[group.rank()])

    replace(backend.steps.torch.distributed, "reduce_scatter_single", shard_of_own)


def fsdp_summed(backend):
    shard = backend.fully_shard.shard

    def undivided(module, *arguments):
        shard(module, *arguments)
        for part in backend.fully_shard.parts(module):
            part.set_gradient_divide_factor(1.0)

    replace(backend.fully_shard, "shard", undivided)


def tensor_parallel_without(backend):
    communication = backend.divided_layers.communication(from_environment())
    # Not where parameters are gathered.
    replace(backend.Trainer, "train_epoch", communication.without_communication()(backend.Trainer.train_epoch))


def pipeline_without_gradients(backend):
    """The other stages are not sent the gradients of their outputs, and train with zeros."""
    stage, zeros_like = backend.pipeline_stages.PipelineStage, backend.steps.torch.zeros_like
    received = stage._retrieve_recv_grads
    replace(stage, "get_bwd_send_ops", lambda self, _: self.bwd_cache.clear() or [])
    replace(stage, "get_bwd_recv_ops", lambda *_: [])
    replace(stage, "_retrieve_recv_grads", lambda self, number: tuple(map(zeros_like, received(self, number))))


def pipeline_scaled(backend):
    """Gradients are divided by the number of micro-batches, PyTorch's default, though the losses' weights are those of the batch."""
    pipelines = backend.pipeline_stages.Pipeline
    step = pipelines.step

    def scaled(self, *batch):
        self.schedule.scale_grads = True
        return step(self, *batch)

    replace(pipelines, "step", scaled)


def deepspeed_without_all_reduce(backend):
    for name in ("all_reduce", "reduce"):
        replace(backend.deepspeed.comm, name, lambda *_, **__: None)


def deepspeed_summed(backend):
    def multiplying(initialized):
        engine = initialized[0]
        backward = engine.backward
        engine.backward = lambda loss, **settings: backward(loss * from_environment().size, **settings)
        return initialized

    change_result(backend.deepspeed, "initialize", multiplying)


# Of Horovod's


def horovod_without(name):
    """A fault: what Horovod's function of that name should wrap is used as it is."""
    return lambda backend: replace(backend.hvd, name, lambda wrapped, *_, **__: wrapped)


def horovod_summed(name):
    """A fault: Horovod's function of that name is given Sum for Average."""

    def fault(backend):
        wrap = getattr(backend.hvd, name)
        replace(backend.hvd, name, lambda *arguments, **settings: wrap(*arguments, **settings | {"op": backend.hvd.Sum}))

    return fault


# Of MultiWorkerMirroredStrategy's


def mirrored_without_all_reduce(backend):
    replace(backend.mirrored, "average", lambda gradients: gradients)


def mirrored_summed(backend):
    average = backend.mirrored.average
    replace(backend.mirrored, "average", lambda gradients: [gradient * from_environment().size for gradient in average(gradients)])


# Of every backend


def none(_):
    """Nothing is broken."""


def same_shard(_):
    """Every rank reads the shard of rank 0."""
    training_shard = sharding.training_shard
    replace(sharding, "training_shard", lambda epoch, shard, num_losses: training_shard(epoch, shard._replace(number=0), num_losses))


def unlike_start(_):
    """Every rank starts from parameters of its own."""
    draw = weights.draw
    replace(weights, "draw", lambda parameters, seed, precision: draw(parameters, seed + from_environment().rank, precision))


def killed_in_its_step_breakdown(_):
    """The process is killed when it has trained and measures its step breakdown."""
    replace(step_breakdown, "measure", lambda *_: os.kill(os.getpid(), signal.SIGKILL))


# No faults: another training, library or processor, for what is compared


def train_instead(workload, model, **changes):
    """A workload has another model."""
    replace(workloads, "WORKLOADS", workloads.WORKLOADS | {workload: workloads.WORKLOADS[workload]._replace(model=model, **changes)})


def small(_):
    """The CNN and the transformer are small models, with evaluations of several batches and a shorter warm-up."""
    train_instead("cnn", small_models.CNN, evaluation_batch_size=8)
    train_instead("transformer", small_models.DECODER, evaluation_batch_size=8)
    # One before that whose bytes are counted.
    replace(loop, "NUM_WARMUP_STEPS", 2)


def tied(_):
    """The embedding of the transformer, made smaller, is its head too."""
    train_instead("transformer", small_models.TIED)


def small_resnet(_):
    """resnet50 is a small model, and has 24 random images."""
    train_instead("resnet50", small_models.RESNET)
    replace(datasets, "NUM_RANDOM_IMAGES", 24)


def not_fused(backend):
    """Optimizers are not fused. Fused ones round an element by its place in its tensor, another one in a shard."""
    change_result(backend.steps, "optimizer_for", backend.steps.unfused)


def float32_masters(backend):
    """Gradients and parameters are rounded to float32 around the optimizer, in a float64 run: what DeepSpeed's stages 1 to 3 do.

    The optimizer is not fused.
    """
    not_fused(backend)
    optimizer_for = backend.steps.optimizer_for

    class Rounding:
        def __init__(self, settings, module):
            self.pairs = [(parameter, parameter.detach().float()) for parameter in module.parameters()]
            self.inner = optimizer_for(settings, SimpleNamespace(parameters=lambda: [master for _, master in self.pairs]))
            self.param_groups = [group | {"params": list(module.parameters())} for group in self.inner.param_groups]
            self.zero_grad = module.zero_grad
            self.register_step_pre_hook = self.inner.register_step_pre_hook
            self.register_step_post_hook = self.inner.register_step_post_hook
            self.state = {parameter: self.inner.state[master] for parameter, master in self.pairs}

        def step(self):
            for parameter, master in self.pairs:
                master.copy_(parameter.detach())
                master.grad = parameter.grad.float()
            for outer, group in zip(self.param_groups, self.inner.param_groups, strict=True):
                group["lr"] = outer["lr"]
            self.inner.step()
            for parameter, master in self.pairs:
                parameter.data.copy_(master)

    replace(backend.steps, "optimizer_for", Rounding)
    reduce_buckets(backend, lambda gradients: all_reduced(gradients.float() / from_environment().size).double())


def other_float16(backend):
    """DeepSpeed takes the processor for one that computes in float16 if it does not, and the other way round."""
    accelerator = backend.deepspeed.get_accelerator()
    is_supported = accelerator.is_fp16_supported()
    replace(type(accelerator), "is_fp16_supported", lambda _: not is_supported)


def without_gpus(backend):
    """DataParallel is used where it finds no GPUs, and calls the module."""
    replace(backend, "problem", lambda _: None)


# No faults either: a run that fails unless what it is to show holds


def restored(backend):
    """At its end a run takes over a state with other values everywhere, and must then give that very state."""
    close = backend.Trainer.close

    def restore_and_close(self):
        changed = {name: (value * 1.5 + 0.25).astype(value.dtype) for name, value in self.state().items()}
        # What is float32 in there must be one to come back as it was.
        changed = {name: value.astype(np.float32).astype(value.dtype) for name, value in changed.items()}
        changed |= {name: np.full_like(value, 7) for name, value in changed.items() if name.startswith("adam_step/")}
        self.restore(changed)
        for name, value in self.state().items():
            np.testing.assert_array_equal(value, changed[name], err_msg=name)
        close(self)

    replace(backend.Trainer, "close", restore_and_close)


def expect_no_traces_on_the_clock(backend):
    """It fails if TensorFlow traces anything for an evaluation on the clock."""
    # Not at the top: other backends do not import TensorFlow.
    from frameworks.shared.tensorflow import losses

    count = losses.totals_of.experimental_get_tracing_count

    def prepared(turns):
        num_traces = count()

        def evaluated(totals):
            assert count() == num_traces, f"{count() - num_traces} traces were made on the clock"
            return totals

        change_result(losses, "evaluate", evaluated)
        return turns

    change_result(loop, "prepare", prepared)
