"""How many times as long training steps take in mixed precision as in float32, on one core, as a table in Markdown.

taskset -c 0 python -m tests.bench.precision
"""

import time
from dataclasses import dataclass
from statistics import median
from types import SimpleNamespace

from common import workloads
from common.config import Settings
from common.process import node_memory
from common.training import loop
from frameworks import single
from tests.bench import shared
from tests.support.step_breakdown_run import random_batches

PRECISIONS = ("fp32", "bf16")
COLUMNS = ("workload", "step, fp32 (ms)", "step, bf16 (ms)", "bf16 / fp32: median (quartiles)")


@dataclass(frozen=True)
class Arguments:
    """What is measured, and how often."""

    workloads: str = "cnn,transformer"
    """Workloads, separated by commas."""
    rounds: int = 40
    """Times that each is measured."""


def run(arguments):
    print(shared.head(COLUMNS))
    for workload in arguments.workloads.split(","):
        full, mixed = step_seconds(workload, arguments.rounds).values()
        milliseconds = [f"{1000 * median(seconds):.2f}" for seconds in (full, mixed)]
        print(shared.row((workload, *milliseconds, shared.with_quartiles(shared.ratios(mixed, full)))), flush=True)


def step_seconds(workload, num_rounds):
    """{precision: CPU seconds of a step in each round}: CPU time does not pass while another program has the core."""
    node_memory.keep_large_buffers()
    settings = {precision: workloads.resolve(Settings(workload=workload, precision=precision), 1) for precision in PRECISIONS}
    trainers = {precision: prepared(of_precision) for precision, of_precision in settings.items()}
    batches = random_batches(settings["fp32"], workloads.local_batch(settings["fp32"], 1))

    def measure(trainer, _):
        begun = time.process_time()
        trainer.train_epoch(batches, float)
        return (time.process_time() - begun) / len(batches)

    return shared.in_turns(measure, trainers, num_rounds)


def prepared(settings):
    """A trainer whose warm-up is done."""
    trainer = single.Trainer(settings)
    loop.prepare(trainer, settings, SimpleNamespace(oversubscribed=False, parameter_digests=[], data_parallel_degree=1))
    return trainer


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)
