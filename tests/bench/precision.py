"""How many times as long training steps take in mixed precision as in float32, on one core, as a table in Markdown.

taskset -c 0 python -m tests.bench.precision

Measured as by tests/bench/fused.py: in turns, in CPU time.
"""

import argparse
import time
from statistics import median

from common import loop, workloads
from common.config import Settings
from common.parallelism import DataParallel
from common.process import allocator
from frameworks import single
from tests.bench.fused import WORKLOADS, summary
from tests.support.step_breakdown_run import own_batches

ORDER = ("fp32", "bf16", "bf16", "fp32")


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.precision", description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help=f"separated by commas (default: {','.join(WORKLOADS)})")
    parser.add_argument("--rounds", type=int, default=20, help="times that A B B A is measured (default: 20)")
    arguments = parser.parse_args()
    allocator.keep_large_buffers()
    print("| workload | step, fp32 (ms) | step, bf16 (ms) | bf16 / fp32: median (quartiles) |")
    print("| --- | --- | --- | --- |")
    for workload in arguments.workloads.split(","):
        full, mixed = measured(workload, arguments.rounds)
        ratios = summary(zip(mixed, full, strict=True))
        print(f"| {workload} | {1000 * median(full):.2f} | {1000 * median(mixed):.2f} | {ratios} |", flush=True)


def measured(workload, num_rounds):
    """(seconds of a step in float32 for each round, in mixed precision)."""
    trainers, seconds = {}, {precision: [] for precision in ORDER}
    for precision in seconds:
        settings = workloads.resolve(Settings(workload=workload, precision=precision), 1)
        trainers[precision] = single.Trainer(settings)
        loop.prepare(trainers[precision], settings, {"oversubscribed": False, "parameter_digests": [], "data_parallel_degree": 1})
    batches = own_batches(settings, DataParallel(0, 1))
    for number in range(2 * num_rounds):
        for precision in ORDER[:2] if number % 2 == 0 else ORDER[2:]:
            begun = time.process_time()
            trainers[precision].train_epoch(batches, float)
            seconds[precision].append((time.process_time() - begun) / len(batches))
    return seconds["fp32"], seconds["bf16"]


if __name__ == "__main__":
    main()
