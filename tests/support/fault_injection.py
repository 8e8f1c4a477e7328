"""Fault injection: runs a backend with a fault. python -m tests.support.fault_injection BACKEND FOLDER FAULT [its arguments] [THEN …].

A fair comparison must catch each fault; `none` is no fault. Rank 0 saves the final parameters in FOLDER, by the
run's name. After THEN come the fault and the arguments of another run, in the same processes: starting them takes longer than a
short run.
"""

import contextlib
import functools
import importlib
import itertools
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np

from common import workloads
from common.data import datasets, sharding
from common.model import weights
from common.process import ending, gpus, noise
from common.process.ranks import from_environment
from common.trainer import Device
from common.training import loop, program, step_breakdown, throughput
from tests.support.backend_faults import REPLACED, hook, replace
from tests.support.contract import ROWS
from tests.support.small_models import RESNET


def no_all_reduce(backend):
    """Every rank trains alone; under ZeRO, every rank trains its shard of the parameters with its own gradients."""
    ROWS[_name(backend)].faults.no_all_reduce(backend)


def summed_gradients(backend):
    """Gradients are added up over the ranks and not divided by their number."""
    ROWS[_name(backend)].faults.summed_gradients(backend)


def _name(backend):
    return backend.__name__.rpartition(".")[2]


def compressed_at_any_rank(backend):
    """No fault: PowerSGD also factorizes matrices whose factors are larger than they are, in several small buckets."""
    hooks = backend.ddp_hooks.powerSGD_hook
    replace(hooks, "PowerSGDState", functools.partial(hooks.PowerSGDState, min_compression_rate=0))
    replace(backend, "DistributedDataParallel", functools.partial(backend.DistributedDataParallel, bucket_cap_mb=0.1))


def warmed_up_for_less(_):
    """No fault: there is one step on zeros less before training."""
    replace(loop, "NUM_WARMUP_STEPS", loop.NUM_WARMUP_STEPS - 1)


def same_shard(_):
    """Every rank reads the shard of rank 0."""
    own = sharding.training_shard
    replace(sharding, "training_shard", lambda *arguments: own(*arguments[:5], 0, *arguments[6:]))


def tied(_):
    """No fault: the embedding of the transformer, made smaller, is its head too."""
    found = workloads.WORKLOADS["transformer"]
    model = found.model._replace(width=32, num_heads=2, tied=True)
    REPLACED.enter_context(mock.patch.dict(workloads.WORKLOADS, {"transformer": found._replace(model=model)}))


def unlike_start(_):
    """Every rank starts from parameters of its own."""
    own = weights.draw
    replace(weights, "draw", lambda parameters, seed, precision: own(parameters, seed + from_environment().rank, precision))


def not_fused(backend):
    """No fault: optimizers are not fused. Fused ones round an element by its place in its tensor, another one in a shard."""
    optimizer_for = backend.pytorch.optimizer_for

    def plain(settings, module):
        optimizer = optimizer_for(settings, module)
        for group in optimizer.param_groups:
            group["fused"] = None
        return optimizer

    replace(backend.pytorch, "optimizer_for", plain)


def float32_masters(backend):
    """Gradients and parameters are rounded to float32 around the optimizer, in a float64 run: what DeepSpeed's stages 1 to 3 do.

    The optimizer is not fused.
    """
    not_fused(backend)
    optimizer_for = backend.pytorch.optimizer_for

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
            for own, group in zip(self.param_groups, self.inner.param_groups, strict=True):
                group["lr"] = own["lr"]
            self.inner.step()
            for parameter, master in self.pairs:
                parameter.data.copy_(master)

    replace(backend.pytorch, "optimizer_for", Rounding)
    if hasattr(backend, "DistributedDataParallel"):
        hook(backend, lambda bucket: _averaged_in_float32(backend, bucket))


def _averaged_in_float32(backend, bucket):
    rounded = bucket.buffer().float() / backend.dist.get_world_size()
    return backend.dist.all_reduce(rounded, async_op=True).get_future().then(lambda done: done.value()[0].double())


def small_resnet(_):
    """No fault: resnet50 is a small model, and has 24 random images."""
    own = workloads.WORKLOADS["resnet50"]
    replace(workloads, "WORKLOADS", workloads.WORKLOADS | {"resnet50": own._replace(model=RESNET)})
    replace(datasets, "NUM_RANDOM_IMAGES", 24)


def frozen_statistics(backend):
    """No fault: as `small_resnet`, and batch norm has a mean of 0 and a variance of 1: images do not depend on one another."""
    small_resnet(backend)
    on_pytorch = hasattr(backend, "pytorch")

    def batch_norm(x, weight, bias, epsilon):
        if on_pytorch:
            weight, bias = weight[:, None, None], bias[:, None, None]
        return x / (1 + epsilon) ** 0.5 * weight + bias

    replace(backend.pytorch.resnet if on_pytorch else backend.tensorflow.resnet, "batch_norm", batch_norm)


def in_rank_order(backend):
    """Gradients are added up in the order of the ranks, where Gloo's order is that of their place in its buffer."""

    def all_reduced(buffer):
        shares = [torch.empty_like(buffer) for _ in range(backend.dist.get_world_size())]
        backend.dist.all_gather(shares, buffer)
        return functools.reduce(torch.add, shares)

    def averaged(bucket):
        done = torch.futures.Future()
        done.set_result(all_reduced(bucket.buffer() / backend.dist.get_world_size()))
        return done

    torch = backend.pytorch.torch
    if hasattr(backend, "deepspeed"):
        replace(backend.deepspeed.comm, "all_reduce", lambda tensor, *_, **__: tensor.copy_(all_reduced(tensor)))
    else:
        hook(backend, averaged)


def float16_supported(backend):
    """No fault: DeepSpeed takes the processor for one that computes in float16."""
    replace(type(backend.deepspeed.get_accelerator()), "is_fp16_supported", lambda _: True)


def float16_not_supported(backend):
    """No fault: DeepSpeed takes the processor for one that does not compute in float16."""
    replace(type(backend.deepspeed.get_accelerator()), "is_fp16_supported", lambda _: False)


def restored(backend):
    """No fault: at its end a run takes over a state with other values everywhere, and must then give that very state."""
    close = backend.Trainer.close

    def restore_and_close(self):
        changed = {name: (value * 1.5 + 0.25).astype(value.dtype) for name, value in self.state().items()}
        # What is float32 in there must be one to come back as it was.
        changed = {name: value.astype(np.float32).astype(value.dtype) for name, value in changed.items()}
        steps = {name: np.full_like(value, 7) for name, value in changed.items() if name.startswith("adam_step/")}
        self.restore(changed | steps)
        for name, value in self.state().items():
            np.testing.assert_array_equal(value, (changed | steps)[name], err_msg=name)
        close(self)

    replace(backend.Trainer, "close", restore_and_close)


def compiled_on_the_clock(backend):
    """Nothing is broken, but a run ends that compiles anything on the clock, or has compiled nothing before."""
    prepare, torch = loop.prepare, backend.pytorch.torch

    def prepared(*arguments):
        turns = prepare(*arguments)
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        assert graphs == 1, f"{graphs} graphs were compiled, not the one for training"
        torch.compiler.set_stance("fail_on_recompile")
        return turns

    replace(loop, "prepare", prepared)


def traced_on_the_clock(backend):
    """Nothing is broken, but a run ends in which TensorFlow traces anything for an evaluation on the clock."""
    prepare, evaluate, count = loop.prepare, backend.tensorflow.evaluate, backend.tensorflow._totals.experimental_get_tracing_count

    def prepared(*arguments):
        turns = prepare(*arguments)
        num_traces = count()

        def evaluated(*arguments):
            totals = evaluate(*arguments)
            assert count() == num_traces, f"{count() - num_traces} traces were made on the clock"
            return totals

        replace(backend.tensorflow, "evaluate", evaluated)
        return turns

    replace(loop, "prepare", prepared)


def without_gpus(backend):
    """No fault: DataParallel is used where it finds no GPUs, and calls the module."""
    replace(backend.data_parallel, "problem", lambda _: None)


def on_one_gpu(backend):
    """All ranks have one GPU, as it seems to them."""
    replace(backend.Trainer, "describe_device", lambda _: Device("cuda", 0, True, None, None, None))
    replace(gpus, "pci_bus_id", lambda _: "0000:07:00.0")


def on_gpus_of_their_own(backend):
    """No fault: every rank has a GPU of its own, as it seems to it."""
    on_one_gpu(backend)
    replace(gpus, "pci_bus_id", lambda _: f"0000:{7 + from_environment().rank:02x}:00.0")


def worker_fails_in_step_20(backend):
    """The training of rank 0 raises an exception in its 20th step after the warm-up."""
    weighted_loss, restore, steps = backend.pytorch.weighted_loss, backend.Trainer.restore, itertools.count(1)

    def begun(self, state):
        nonlocal steps
        steps = itertools.count(1)
        restore(self, state)

    def failing(logits, *others):
        if logits.requires_grad and from_environment().rank == 0 and next(steps) == 20:
            raise ArithmeticError("it does not add up")
        return weighted_loss(logits, *others)

    replace(backend.Trainer, "restore", begun)
    replace(backend.pytorch, "weighted_loss", failing)


def killed_in_its_step_breakdown(_):
    """The process is killed when it has trained and measures its step breakdown."""
    replace(step_breakdown, "measure", lambda *_: os.kill(os.getpid(), signal.SIGKILL))


def none(_):
    """Nothing is broken."""


def saving(trainer_class, folder):
    """The class with a `close` that saves the parameters first."""
    close = trainer_class.close

    def save_and_close(self):
        state = self.state()
        if self.ranks.rank == 0:
            run_id = sys.argv[sys.argv.index("--run-id") + 1]
            np.savez(folder / f"{run_id}.npz", **{name: value for name, value in state.items() if "/" not in name})
        # The first rank to leave Horovod may take the others down with it: none leaves before the file is written.
        self.sum(np.zeros(1))
        close(self)
        # Gloo's threads want the interpreter's lock to let go of their last tensors: a process group that is collected waits for
        # them with the lock held, and so for ever.
        kept.append(self)

    kept = []
    trainer_class.close = save_and_close
    return trainer_class


def main():
    name, folder, *arguments = sys.argv[1:]
    *others, last = (list(run) for is_run, run in itertools.groupby(arguments, lambda word: word != "THEN") if is_run)
    backend = importlib.import_module(f"frameworks.{name}")
    saving(backend.Trainer, Path(folder))
    shut_down = backend.hvd.shutdown if hasattr(backend, "hvd") else None
    with contextlib.ExitStack() as meanwhile:
        # Horovod and DeepSpeed cannot be started a second time in a process. MPI ends with the last run, and Horovod's thread may
        # not call it afterwards.
        if others and hasattr(backend, "hvd"):
            meanwhile.enter_context(mock.patch.object(backend.hvd, "shutdown"))
        if others and hasattr(backend, "deepspeed"):
            # Nor can DeepSpeed end with the last.
            mock.patch.object(backend.dist, "destroy_process_group").start()
        leave = ending.leave
        # A run that failed may not be followed by another: its ranks are no longer at the same place.
        meanwhile.enter_context(mock.patch.object(ending, "leave", lambda status: leave(status) if status else None))
        for run, following in itertools.pairwise((*others, last)):
            train(backend, *run)
            # The next run meets at a port of its own.
            for variable in ("MASTER_ADDR", "MASTER_PORT"):
                os.environ.pop(variable, None)
            # Horovod can be started over MPI after Gloo, and not the other way round.
            if shut_down and "gloo" in run and "gloo" not in following:
                shut_down()
                for variable in [name for name in os.environ if name.startswith("HOROVOD_")]:
                    del os.environ[variable]
    train(backend, *last)


def train(backend, fault, *arguments):
    """Trains the backend with a fault and these arguments."""
    sys.argv[1:] = arguments
    with REPLACED:
        # Measuring the machine would take as long as a short run.
        repeated = noise.repeated
        replace(noise, "repeated", lambda action, _: repeated(action, noise.SLICE_SECONDS))
        replace(throughput, "SECONDS", 0)
        globals()[fault](backend)
        program.main(backend.Trainer, backend.__file__)


if __name__ == "__main__":
    main()
