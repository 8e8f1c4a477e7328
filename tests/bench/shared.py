"""What the benchmarks share: their command line, measuring things in turns, ratios of what was measured, and tables in Markdown."""

from pathlib import Path
from statistics import median, quantiles

from common import command_line


def main(run, arguments, file, doc):
    """Runs a benchmark as a program: `arguments` is its dataclass, `file` and `doc` are those of its module."""
    command_line.main(run, arguments, f"python -m tests.bench.{Path(file).stem}", doc.splitlines()[0])


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
