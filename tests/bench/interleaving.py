"""What runs side by side bring on a machine with a neighbour: intervals and verdicts of the same comparison, as a table in Markdown.

python -m tests.bench.interleaving --repeats 6

DDP and Horovod-PyTorch train the CNN on 2 ranks: on the quiet machine, and beside a neighbour that loads one core for 20 s and then rests
for 20 s, one after the other and side by side. The conditions take turns, so that all meet the machine at all times.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from launch.report import entries
from launch.report.questions import first
from tests.support.running import BIN, copied, environ

NUM_RANKS = 2
BACKENDS = ("ddp", "horovod_torch")
SETTINGS = ("--workloads", "cnn", "--backends", ",".join(BACKENDS), "--no-step-breakdown", "--machine", "here")
# Name -> whether there is a neighbour, and the settings of the matrix.
CONDITIONS = {
    "quiet, one after the other": (False, ("--no-side-by-side",)),
    "quiet, side by side": (False, ()),
    "neighbour, one after the other": (True, ("--no-side-by-side",)),
    "neighbour, side by side": (True, ()),
}
COLUMNS = ("machine and order", "repeats", "seconds per epoch: ddp", "horovod_torch", "ratio", "95 % interval", "± %", "verdict")


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.interleaving", description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the neighbour works, and rests (default: 20)")
    arguments = parser.parse_args()
    found = {name: [] for name in CONDITIONS}
    with tempfile.TemporaryDirectory() as name:
        checkout = copied(Path(name))
        for repeat in range(arguments.repeats):
            for condition, (has_neighbour, settings) in CONDITIONS.items():
                # It begins at another moment of its period in each repeat, but alike for both orders.
                waits = random.Random(repeat).uniform(0, 2 * arguments.seconds)
                with neighbour(arguments.seconds, waits) if has_neighbour else contextlib.nullcontext():
                    found[condition] += run(checkout, Path(name) / f"{repeat}-{list(CONDITIONS).index(condition)}", repeat, settings)
                print(f"<!-- repeat {repeat + 1}: {condition} -->", flush=True)
    print("| " + " | ".join(COLUMNS) + " |\n" + "| --- " * len(COLUMNS) + "|")
    for condition, runs in found.items():
        print(row(condition, runs))


@contextlib.contextmanager
def neighbour(seconds, waits):
    """Another process on the first core, within this context: it waits, and then works and rests in turn for `seconds` each."""
    process = multiprocessing.get_context("spawn").Process(target=work_and_rest, args=(seconds, waits), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def work_and_rest(seconds, waits):
    time.sleep(waits)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    matrix = np.ones((512, 512))
    while True:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            matrix @ matrix
        time.sleep(seconds)


def run(checkout, folder, repeat, settings):
    """The records of one matrix with one repeat."""
    command = [BIN / "python", "-m", "launch.matrix", NUM_RANKS, *SETTINGS, "--seed", 1 + repeat, "--results", folder, *settings]
    done = subprocess.run(
        [str(part) for part in command], cwd=checkout, env=environ() | {"OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"error: {done.stdout}{done.stderr}")
    return [json.loads(path.read_text()) for path in sorted(folder.glob("here/*.json"))]


def row(condition, found):
    """The row of the table for the records of a condition."""
    (compared,) = entries.comparisons(found)
    above, below = (compared.entry(backend, NUM_RANKS) for backend in BACKENDS)
    ratio = entries.epoch_ratio(above, below, len(BACKENDS))
    half_width = 100 * (ratio.high / ratio.value - 1)
    seconds = [f"{entries.epoch_seconds(entry):.3f}" for entry in (above, below)]
    cells = (condition, len(above.runs), *seconds, f"{ratio.value:.3f}", f"{ratio.low:.3f} to {ratio.high:.3f}", f"{half_width:.1f}")
    return "| " + " | ".join(map(str, (*cells, first.VERDICTS.get(ratio.verdict, "none")))) + " |"


if __name__ == "__main__":
    main()
