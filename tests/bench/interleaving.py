"""What runs side by side bring on a machine with a neighbour: intervals and verdicts of the same comparison, as a table in Markdown.

python -m tests.bench.interleaving --repeats 6

DDP and Horovod-PyTorch train the CNN on 2 ranks, one after the other and side by side: on the quiet machine, and beside a neighbour that
loads one core for 20 s and then rests for 20 s; and side by side with a neighbour that loads it all the time in the second half of the
repeats. The conditions take turns, so that all meet the machine at all times.
"""

import contextlib
import dataclasses
import math
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.record import records
from launch.report import entries, noise
from launch.report.questions import first
from launch.report.words import level
from tests.bench import shared
from tests.support.running import BIN, copied, environ

NUM_RANKS = 2
BACKENDS = ("ddp", "horovod_torch")
SETTINGS = ("--workloads", "cnn", "--backends", ",".join(BACKENDS), "--no-step-breakdown", "--machine", "here")
ONE_AFTER_THE_OTHER = ("--no-side-by-side",)
QUIET, ON_AND_OFF, SECOND_HALF = "quiet", "neighbour", "neighbour for half of the matrix"
# Neighbour, and settings of the matrix.
CONDITIONS = [
    (QUIET, ONE_AFTER_THE_OTHER), (QUIET, ()), (ON_AND_OFF, ONE_AFTER_THE_OTHER), (ON_AND_OFF, ()), (SECOND_HALF, ()),
]  # fmt: skip
COLUMNS = ("machine", "order", "repeats", "seconds per epoch: ddp", "horovod_torch", "ratio", "95 % interval", "± %", "verdict", "marked")


@dataclass(frozen=True)
class Arguments:
    """How much is run, and how the neighbour works."""

    repeats: int = 6
    """Repeats under each condition."""
    seconds: float = 20.0
    """How long the neighbour works, and rests."""


def main(arguments):
    records_of = {condition: [] for condition in CONDITIONS}
    with tempfile.TemporaryDirectory() as name:
        checkout = copied(Path(name))
        for repeat in range(arguments.repeats):
            for number, condition in enumerate(CONDITIONS):
                with beside(condition[0], repeat, arguments):
                    records_of[condition] += run(checkout, Path(name) / f"{repeat}-{number}", repeat, condition[1])
                print(f"<!-- repeat {repeat + 1}: condition {number + 1} of {len(CONDITIONS)} -->", flush=True)
    print(shared.head(COLUMNS))
    for condition, records_of_condition in records_of.items():
        print(shared.row(cells(condition, records_of_condition)))


def beside(which, repeat, arguments):
    """A context with the neighbour of a condition in a repeat, if it has one then."""
    if which == ON_AND_OFF:
        # It begins at another moment of its period in each repeat, but alike for both orders.
        return neighbour(arguments.seconds, arguments.seconds, random.Random(repeat).uniform(0, 2 * arguments.seconds))
    return neighbour(math.inf, 0, 0) if which == SECOND_HALF and 2 * repeat >= arguments.repeats else contextlib.nullcontext()


@contextlib.contextmanager
def neighbour(works, rests, waits):
    """Another process on the first core, within this context: it waits, and then works and rests in turn, for so many seconds."""
    process = multiprocessing.get_context("spawn").Process(target=work_and_rest, args=(works, rests, waits), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def work_and_rest(works, rests, waits):
    time.sleep(waits)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    matrix = np.ones((512, 512))
    while True:
        until = time.monotonic() + works
        while time.monotonic() < until:
            matrix @ matrix
        time.sleep(rests)


def run(checkout, folder, repeat, settings):
    """The records of one matrix with one repeat."""
    command = [BIN / "python", "-m", "launch.matrix", NUM_RANKS, *SETTINGS, "--seed", 1 + repeat, "--results", folder, *settings]
    done = subprocess.run(
        [str(part) for part in command], cwd=checkout, env=environ() | {"OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"error: {done.stdout}{done.stderr}")
    return records.read_all(folder)


def cells(condition, records_of_condition):
    """The row of the table for the records of a condition."""
    (compared,) = entries.comparisons(records_of_condition)
    above, below = (compared.entry(backend, NUM_RANKS) for backend in BACKENDS)
    ratio = entries.epoch_ratio(above, below, [above, below])
    order = "one after the other" if condition[1] else "side by side"
    seconds = [f"{entries.epoch_seconds(entry):.3f}" for entry in (above, below)]
    interval = f"{ratio.low:.3f} to {ratio.high:.3f}", f"{100 * (ratio.high / ratio.value - 1):.1f}"
    verdict = "none" if ratio.verdict is None else level(ratio) or first.SLOWER
    return condition[0], order, len(above.records), *seconds, f"{ratio.value:.3f}", *interval, verdict, marked(records_of_condition)


def marked(records_of_condition):
    """How many runs the report marks, since the machine was not quiet beside them; every repeat here is a matrix of its own."""
    of_one_matrix = [
        dataclasses.replace(record, settings=dataclasses.replace(record.settings, run_id="one")) for record in records_of_condition
    ]
    return f"{sum(abs(percent) > noise.QUIET_PERCENT for _, percent in noise.farthest(of_one_matrix))} of {len(records_of_condition)}"


if __name__ == "__main__":
    shared.main(main, Arguments, __file__, __doc__)
