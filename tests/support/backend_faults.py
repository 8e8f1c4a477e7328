"""How each backend is broken: without its all-reduce, or whatever it exchanges instead, and with gradients that are too large."""

import contextlib
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

from common.process.ranks import from_environment

# What the fault of the current run has replaced.
REPLACED = contextlib.ExitStack()


def replace(owner, name, value):
    """Sets an attribute until the run ends."""
    REPLACED.enter_context(mock.patch.object(owner, name, value))


def ddp_without_all_reduce(backend):
    def alone(module, **_):
        module.register_comm_hook = lambda *_: None
        return module

    replace(backend, "DistributedDataParallel", alone)


def multiplied_gradients(backend):
    """The optimizer is given the gradients times the number of ranks."""
    optimizer_for = backend.pytorch.optimizer_for

    def multiply(optimizer, *_):
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad = parameter.grad * from_environment().size

    def multiplying(*arguments):
        optimizer = optimizer_for(*arguments)
        optimizer.register_step_pre_hook(multiply)
        return optimizer

    replace(backend.pytorch, "optimizer_for", multiplying)


def zero_redundancy_summed(backend):
    hook(backend, lambda bucket: _all_reduced(backend, bucket))


def by_hand_without(name):
    """A fault: the method of that name does nothing."""
    return lambda backend: replace(backend.Trainer, name, lambda _: None)


def by_hand_summed(backend):
    unpack = backend.vector_to_parameters
    replace(backend, "vector_to_parameters", lambda vector, parts: unpack(vector * backend.dist.get_world_size(), parts))


def post_local_sgd_without(backend):
    replace(backend.post_local_sgd.utils, "average_parameters", lambda *_: None)


def post_local_sgd_summed(backend):
    average = backend.post_local_sgd.utils.average_parameters

    def summed(parameters, group):
        averaged = list(parameters)
        average(iter(averaged), group)
        for parameter in averaged:
            parameter.data *= group.size()

    replace(backend.post_local_sgd.utils, "average_parameters", summed)


def server_without_updates(backend):
    replace(backend.parameter_server, "update", lambda *_: None)


def server_summed(backend):
    update = backend.parameter_server.update
    replace(backend.parameter_server, "update", lambda *arguments: update(*arguments[:3], 1))


def fsdp_without_all_reduce(backend):
    def own_part(output, input, group, **_):
        output.copy_(input.chunk(group.size())[group.rank()])

    replace(backend.dist, "reduce_scatter_single", own_part)


def fsdp_summed(backend):
    shard = backend.fsdp.shard

    def sharded(*arguments):
        module = shard(*arguments)
        for part in backend.fsdp.parts(module):
            part.set_gradient_divide_factor(1.0)
        return module

    replace(backend.fsdp, "shard", sharded)


def tensor_parallel_without(backend):
    communication = backend.tensor_parallel.communication(from_environment(), device=None)
    # Not where parameters are gathered.
    replace(backend.Trainer, "train_epoch", communication.without_communication()(backend.Trainer.train_epoch))


def pipeline_without_gradients(backend):
    """The other stages are not sent the gradients of their outputs, and train with zeros."""
    stage, zeros_like = backend.pipeline.PipelineStage, backend.pytorch.torch.zeros_like
    received = stage._retrieve_recv_grads
    replace(stage, "get_bwd_send_ops", lambda self, _: self.bwd_cache.clear() or [])
    replace(stage, "get_bwd_recv_ops", lambda *_: [])
    replace(stage, "_retrieve_recv_grads", lambda self, number: tuple(map(zeros_like, received(self, number))))


def pipeline_scaled(backend):
    """Gradients are divided by the number of micro-batches, PyTorch's default, though the losses' weights are those of the batch."""
    pipelines = backend.pipeline.Pipeline
    step = pipelines.step

    def scaled(self, *batch):
        self.schedule.scale_grads = True
        return step(self, *batch)

    replace(pipelines, "step", scaled)


def deepspeed_without_all_reduce(backend):
    for name in ("all_reduce", "reduce"):
        replace(backend.deepspeed.comm, name, lambda *_, **__: None)


def deepspeed_summed(backend):
    initialize = backend.deepspeed.initialize

    def initialized(*arguments, **settings):
        engine, *others = initialize(*arguments, **settings)
        backward = engine.backward
        engine.backward = lambda loss, **settings: backward(loss * backend.dist.get_world_size(), **settings)
        return engine, *others

    replace(backend.deepspeed, "initialize", initialized)


def horovod_without(name):
    """A fault: what Horovod's function of that name should wrap is used as it is."""

    def fault(backend):
        replace(backend.hvd, name, lambda wrapped, *_, **__: wrapped)

    return fault


def horovod_summed(name):
    """A fault: Horovod's function of that name is given Sum for Average."""

    def fault(backend):
        wrap = getattr(backend.hvd, name)
        replace(backend.hvd, name, lambda *arguments, **settings: wrap(*arguments, **settings | {"op": backend.hvd.Sum}))

    return fault


class Faults(NamedTuple):
    """How a backend is broken: functions of its module."""

    no_all_reduce: Callable
    summed_gradients: Callable


def _all_reduced(backend, bucket):
    return backend.dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


def hook(backend, reduce):
    """Gives DistributedDataParallel another way to reduce a bucket of gradients."""
    wrap = backend.DistributedDataParallel

    def wrapped(module, **settings):
        model = wrap(module, **settings)
        model.register_comm_hook(None, lambda _, bucket: reduce(bucket))
        return model

    replace(backend, "DistributedDataParallel", wrapped)
