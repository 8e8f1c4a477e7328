"""How much faster training steps are with PyTorch's fused optimizers than with its others, on one core, as a table in Markdown.

taskset -c 0 python -m tests.bench.fused

Two trainers of the same model take turns, block by block in the order A B B A, which cancels a drift of the machine. Seconds are of CPU
time, which does not pass while another program has the core.
"""

import argparse
import time
from statistics import median, quantiles

from common import loop, workloads
from common.config import Settings
from common.parallelism import DataParallel
from common.process import allocator
from frameworks import single
from tests.support.step_breakdown_run import own_batches

WORKLOADS = ("cnn", "transformer")
OPTIMIZERS = ("sgd", "adam")
# Whether the optimizer of a block is fused.
ORDER = (False, True, True, False)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fused", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50, help="times that A B B A is measured (default: 50)")
    arguments = parser.parse_args()
    allocator.keep_large_buffers()
    print("| workload | optimizer | step, default (ms) | step, fused (ms) | default / fused: median (quartiles) |")
    print("| --- | --- | --- | --- | --- |")
    for workload in WORKLOADS:
        for optimizer in OPTIMIZERS:
            found = measured(workloads.resolve(Settings(workload=workload, optimizer=optimizer), 1), arguments.rounds)
            default, fused = (1000 * median(seconds) for seconds in zip(*found, strict=True))
            print(f"| {workload} | {optimizer} | {default:.2f} | {fused:.2f} | {summary(found)} |", flush=True)


def measured(settings, num_rounds):
    """For each round (seconds of a step with the default optimizer, with the fused one)."""
    batches = own_batches(settings, DataParallel(0, 1))
    trainers = {fused: trainer_with(settings, fused) for fused in (False, True)}
    rounds = []
    for _ in range(num_rounds):
        seconds = {False: 0.0, True: 0.0}
        for fused in ORDER:
            begun = time.process_time()
            trainers[fused].train_epoch(batches, float)
            seconds[fused] += time.process_time() - begun
        rounds.append(tuple(each / (2 * len(batches)) for each in seconds.values()))
    return rounds


def trainer_with(settings, fused):
    """A trainer whose optimizer is fused or PyTorch's default, and has its state."""
    trainer = single.Trainer(settings)
    own = trainer.optimizer
    trainer.optimizer = type(own)(trainer.module.parameters(), **own.defaults | {"fused": fused or None})
    loop.prepare(trainer, settings, {"oversubscribed": False, "parameter_digests": [], "data_parallel_degree": 1})
    return trainer


def summary(rounds):
    """The median and the quartiles of the ratios of (default, fused) seconds."""
    low, middle, high = quantiles([default / fused for default, fused in rounds], n=4, method="inclusive")
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
