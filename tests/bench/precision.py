"""How many times as long training steps take in mixed precision as in float32, on one core, as a table in Markdown.

taskset -c 0 python -m tests.bench.precision
"""

from dataclasses import dataclass
from statistics import median

from common import workloads
from common.config import Settings
from tests.bench import shared, trainers

COLUMNS = ("workload", "step, fp32 (ms)", "step, bf16 (ms)", "bf16 / fp32: median (quartiles)")


@dataclass(frozen=True)
class Arguments:
    """What is measured, and how often."""

    workloads: str = ",".join(trainers.WORKLOADS)
    """Workloads, separated by commas."""
    rounds: int = 40
    """Times that each is measured."""


def run(arguments):
    print(shared.head(COLUMNS))
    for workload in arguments.workloads.split(","):
        full, mixed = measured(workload, arguments.rounds)
        milliseconds = [f"{1000 * median(seconds):.2f}" for seconds in (full, mixed)]
        print(shared.row((workload, *milliseconds, shared.with_quartiles(shared.ratios(mixed, full)))), flush=True)


def measured(workload, num_rounds):
    """(seconds of a step in float32 for each round, in mixed precision)."""
    settings = [workloads.resolve(Settings(workload=workload, precision=precision), 1) for precision in ("fp32", "bf16")]
    both = {each.precision: trainers.prepared(each) for each in settings}
    return tuple(trainers.step_seconds(both, settings[0], num_rounds).values())


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)
