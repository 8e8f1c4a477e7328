"""What runs side by side bring on a machine with a neighbour: intervals and verdicts of the same comparison, as a table in Markdown.

python -m tests.bench.interleaving --repeats 6

DDP and Horovod-PyTorch train the CNN on 2 ranks, one after the other and side by side: on the quiet machine, and beside a neighbour that
loads one core for 20 s and then rests for 20 s; and side by side with a neighbour that loads it all the time in the second half of the
repeats.
"""

import contextlib
import dataclasses
import math
import multiprocessing
import os
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from launch.report import entries, measures, noise
from tests.bench import shared
from tests.support.running import copied

BACKENDS = ("ddp", "horovod_torch")
SETTINGS = (shared.NUM_RANKS, "--no-step-breakdown", "--workloads", "cnn", "--backends", ",".join(BACKENDS))
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
    with tempfile.TemporaryDirectory() as name:
        checkout = copied(Path(name))

        def measure(condition, repeat):
            machine, order = condition
            with beside(machine, repeat, arguments):
                return shared.matrix(checkout, Path(name, *order, machine), *SETTINGS, "--seed", 1 + repeat, *order)

        records_of = shared.in_blocks(measure, CONDITIONS, arguments.repeats)
    print(shared.head(COLUMNS))
    for condition in CONDITIONS:
        print(shared.row(cells(condition, records_of[condition])))


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


def cells(condition, records_of_condition):
    """The row of the table for the records of a condition."""
    (compared,) = entries.comparisons(records_of_condition)
    above, below = (compared.entry(backend, shared.NUM_RANKS) for backend in BACKENDS)
    ratio = measures.epoch_ratio(above, below, [above, below])
    machine, settings = condition
    order = "one after the other" if settings else "side by side"
    seconds = [f"{measures.epoch_seconds(entry):.3f}" for entry in (above, below)]
    of_ratio = f"{ratio.value:.3f}", f"{ratio.low:.3f} to {ratio.high:.3f}", f"{100 * (ratio.high / ratio.value - 1):.1f}"
    return machine, order, len(above.records), *seconds, *of_ratio, shared.verdict(ratio), marked(records_of_condition)


def marked(records_of_condition):
    """Beside how many runs the machine's speed was far from its median; every repeat here is a matrix of its own."""
    of_one_matrix = [
        dataclasses.replace(record, settings=dataclasses.replace(record.settings, run_id="one")) for record in records_of_condition
    ]
    far = [sample.record for sample in noise.samples(of_one_matrix) if abs(sample.percent) > noise.QUIET_PERCENT]
    return f"{len({(record.backend, record.seed) for record in far})} of {len(records_of_condition)}"


if __name__ == "__main__":
    shared.main(main, Arguments, __file__, __doc__)
