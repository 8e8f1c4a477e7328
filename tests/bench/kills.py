"""Kills matrices by SIGKILL at random moments of their first run and counts what they leave, as a table in Markdown.

python -m tests.bench.kills --launcher mpich --num-kills 20
"""

import contextlib
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.bench import shared
from tests.support import kills, slurm_cluster
from tests.support.running import copied

COLUMNS = ("launcher", "kills", "with processes of a run", "left a process", "median seconds to the last end", "at most", "records")


@dataclass(frozen=True)
class Arguments:
    """What is killed, how often and when."""

    launcher: Literal["mpich", "torchrun", "srun"] = "mpich"
    """srun: in a Slurm of two nodes."""
    num_kills: int = 20
    max_seconds: float = 10.0
    """Latest moment after the start of the run."""
    seed: int = 1
    """Of the moments."""


def run(arguments):
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
    print(shared.head(COLUMNS))
    print(row(arguments.launcher, outcomes))


def row(launcher, outcomes):
    """The row of the table for the Outcomes of a launcher."""
    during = [outcome for outcome in outcomes if outcome.num_before]
    seconds = [outcome.seconds for outcome in during] or [0.0]
    statuses = [" and ".join(outcome.statuses) or "none" for outcome in during]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in sorted(set(statuses)))
    left = sum(bool(outcome.left) for outcome in outcomes)
    return shared.row((launcher, len(outcomes), len(during), left, f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}", counts))


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)
