"""Kills matrices by SIGKILL at random moments of their first run and counts what they leave, as a table in Markdown.

python -m tests.bench.kills --launcher mpich --num-kills 20
"""

import argparse
import contextlib
import random
import statistics
import tempfile
import time
from pathlib import Path

from tests.support import kills, slurm_cluster
from tests.support.running import copied

COLUMNS = ("launcher", "kills", "with processes of a run", "left a process", "median seconds to the last end", "at most", "records")


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.kills", description=__doc__.splitlines()[0])
    parser.add_argument("--launcher", choices=("mpich", "torchrun", "srun"), default="mpich", help="srun: in a Slurm of two nodes")
    parser.add_argument("--num-kills", type=int, default=20)
    parser.add_argument("--max-seconds", type=float, default=10.0, help="latest moment after the start of the run (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: 1)")
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options, variables = ["--launcher", arguments.launcher], {}
        if arguments.launcher == "srun":
            cluster = stack.enter_context(slurm_cluster.started(folder / "slurm"))
            variables = stack.enter_context(kills.allocation(cluster))
            options += ["--ranks-per-node", "1"]
        checkout = copied(folder)
        outcomes = []
        for number in range(arguments.num_kills):
            results = folder / f"results-{number}"
            matrix = kills.start(checkout, results, *options, "--epochs", "500", variables=variables)
            try:
                while not kills.ranks_of(results) and matrix.poll() is None:
                    time.sleep(0.01)
                time.sleep(moments.uniform(0, arguments.max_seconds))
            finally:
                outcomes.append(kills.kill(matrix, checkout, results))
            print(f"<!-- kill {number + 1}: {outcomes[-1]} -->", flush=True)
    print("| " + " | ".join(COLUMNS) + " |\n" + "| --- " * len(COLUMNS) + "|")
    print(row(arguments.launcher, outcomes))


def row(launcher, outcomes):
    """The row of the table for the Outcomes of a launcher."""
    during = [outcome for outcome in outcomes if outcome.num_before]
    seconds = [outcome.seconds for outcome in during] or [0.0]
    statuses = [" and ".join(outcome.statuses) or "none" for outcome in during]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in sorted(set(statuses)))
    left = sum(bool(outcome.left) for outcome in outcomes)
    cells = (launcher, len(outcomes), len(during), left, f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}", counts)
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()
