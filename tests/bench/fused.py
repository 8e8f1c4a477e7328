"""How much faster training steps are with PyTorch's fused optimizers than with its others, on one core, as a table in Markdown.

taskset -c 0 python -m tests.bench.fused
"""

from dataclasses import dataclass
from statistics import median

from common import workloads
from common.config import Settings
from tests.bench import shared, trainers

OPTIMIZERS = ("sgd", "adam")
COLUMNS = ("workload", "optimizer", "step, default (ms)", "step, fused (ms)", "default / fused: median (quartiles)")


@dataclass(frozen=True)
class Arguments:
    """How often is measured."""

    rounds: int = 100
    """Times that each is measured."""


def run(arguments):
    print(shared.head(COLUMNS))
    for workload in trainers.WORKLOADS:
        for optimizer in OPTIMIZERS:
            settings = workloads.resolve(Settings(workload=workload, optimizer=optimizer), 1)
            both = {fused: trainers.prepared(settings, fused) for fused in (False, True)}
            default, fused = trainers.step_seconds(both, settings, arguments.rounds).values()
            milliseconds = [f"{1000 * median(seconds):.2f}" for seconds in (default, fused)]
            quartiles = shared.with_quartiles(shared.ratios(default, fused))
            print(shared.row((workload, optimizer, *milliseconds, quartiles)), flush=True)


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)
