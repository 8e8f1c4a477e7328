"""What the benchmarks share: their command line, matrices in randomized blocks, and tables in Markdown."""

import random
import subprocess
from pathlib import Path

from common import command_line
from common.record import reading
from launch.report.questions.first import SLOWER
from launch.report.statistics import MIN_RUNS_CONFIDENT
from launch.report.words import level
from tests.support.running import BIN, environ

NUM_RANKS = 2


def main(run, arguments, file, doc):
    """Runs a benchmark as a program: `arguments` is its dataclass, `file` and `doc` are those of its module."""
    command_line.main(run, arguments, f"python -m tests.bench.{Path(file).stem}", doc.splitlines()[0])


def matrix(checkout, folder, *arguments, variables=None):
    """The records of a folder after a matrix in a copied checkout with these variables; a failed run leaves the others.

    The matrix prints to standard error.
    """
    program = [BIN / "python", "-m", "launch.matrix", *arguments, "--machine", "here", "--results", folder]
    subprocess.run(list(map(str, program)), cwd=checkout, env=environ() | (variables or {}), stdout=subprocess.DEVNULL, check=False)
    return reading.collect([folder])[0]


def in_blocks(measure, conditions, num_repeats):
    """Returns {condition: what measure(condition, repeat) gave in the last repeat}.

    In every repeat the conditions have an order drawn at random, so that all meet the machine at all times (randomized blocks).
    """
    measured = {}
    for repeat in range(num_repeats):
        for number, condition in enumerate(random.Random(repeat).sample(conditions, len(conditions)), 1):
            measured[condition] = measure(condition, repeat)
            print(f"<!-- repeat {repeat + 1}: condition {number} of {len(conditions)} -->", flush=True)
    return measured


def verdict(ratio):
    """How the sides of a ratio of epochs compare, in words."""
    return f"needs {MIN_RUNS_CONFIDENT} repeats" if ratio.verdict is None else level(ratio) or (SLOWER if ratio.value > 1 else "faster")


def head(columns):
    """The first two lines of a table."""
    return f"{row(columns)}\n{'| --- ' * len(columns)}|"


def row(cells):
    return f"| {' | '.join(map(str, cells))} |"
