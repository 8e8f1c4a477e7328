"""Two trainers of one model whose steps are compared, on one core."""

import time
from types import SimpleNamespace

from common.cost.parallelism import DataParallel
from common.process import allocator
from common.training import loop
from frameworks import single
from tests.bench import shared
from tests.support.step_breakdown_run import random_batches

WORKLOADS = ("cnn", "transformer")


def prepared(settings, fused=None):
    """A trainer whose warm-up is done; `fused`: whether its optimizer is one of PyTorch's fused ones, None for ours."""
    trainer = single.Trainer(settings)
    if fused is not None:
        optimizer = trainer.optimizer
        trainer.optimizer = type(optimizer)(trainer.module.parameters(), **optimizer.defaults | {"fused": fused or None})
    loop.prepare(trainer, settings, SimpleNamespace(oversubscribed=False, parameter_digests=[], data_parallel_degree=1))
    return trainer


def step_seconds(trainers, settings, num_rounds):
    """{name: seconds of a step in each round} of {name: trainer}, which take turns: A B B A in two rounds.

    Seconds are of CPU time, which does not pass while another program has the core.
    """
    allocator.keep_large_buffers()
    batches = random_batches(settings, DataParallel(0, 1))

    def measure(trainer):
        begun = time.process_time()
        trainer.train_epoch(batches, float)
        return (time.process_time() - begun) / len(batches)

    return shared.in_turns({name: lambda _, trainer=trainer: measure(trainer) for name, trainer in trainers.items()}, num_rounds)
