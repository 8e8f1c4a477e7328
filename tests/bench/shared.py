"""What the benchmarks share: their command line, matrices, measuring in turns, ratios of what was measured, and tables in Markdown."""

import random
import subprocess
from pathlib import Path
from statistics import median, quantiles

from common import command_line
from common.record.records import read_all
from launch.report.questions.first import SLOWER
from launch.report.questions.repeated import FASTER
from launch.report.words import level
from tests.support.running import BIN, environ

NUM_RANKS = 2


def main(run, arguments, file, doc):
    """Runs a benchmark as a program: `arguments` is its dataclass, `file` and `doc` are those of its module."""
    command_line.main(run, arguments, f"python -m tests.bench.{Path(file).stem}", doc.splitlines()[0])


def matrix(checkout, folder, *arguments):
    """The records of a folder after a matrix in a copied checkout, which prints to standard error; a failed run leaves the others."""
    program = [BIN / "python", "-m", "launch.matrix", NUM_RANKS, "--no-step-breakdown", "--machine", "here", "--results", folder]
    subprocess.run(list(map(str, [*program, *arguments])), cwd=checkout, env=environ(), stdout=subprocess.DEVNULL, check=False)
    return read_all(folder)


def in_blocks(measure, conditions, num_repeats):
    """{condition: what measure(condition, repeat) gave in the last repeat}.

    In every repeat the conditions have an order drawn at random, so that all meet the machine at all times (randomized blocks).
    """
    measured = {}
    for repeat in range(num_repeats):
        for number, condition in enumerate(random.Random(repeat).sample(conditions, len(conditions)), 1):
            measured[condition] = measure(condition, repeat)
            print(f"<!-- repeat {repeat + 1}: condition {number} of {len(conditions)} -->", flush=True)
    return measured


def in_turns(measure, subjects, num_rounds):
    """{name: what measure(subject, round) gave in each round}, for {name: subject}.

    Every second round has the order turned around: A B B A, which cancels a drift of the machine.
    """
    values = {name: [] for name in subjects}
    for number in range(num_rounds):
        for name in subjects if number % 2 == 0 else reversed(subjects):
            values[name].append(measure(subjects[name], number))
    return values


def ratios(above, below):
    """The ratio of each round."""
    return [numerator / denominator for numerator, denominator in zip(above, below, strict=True)]


def verdict(ratio):
    """How the sides of a ratio of epochs compare, in words."""
    return "none" if ratio.verdict is None else level(ratio) or (SLOWER if ratio.value > 1 else FASTER)


def with_range(values):
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def with_quartiles(values):
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def head(columns):
    """The first two lines of a table."""
    return f"{row(columns)}\n{'| --- ' * len(columns)}|"


def row(cells):
    return f"| {' | '.join(map(str, cells))} |"
