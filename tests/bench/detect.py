"""Whether the report finds a planted slow-down, and none where there is none: independent matrices, as a table in Markdown.

python -m tests.bench.detect --num-matrices 20 --repeats 12 --percent 5

Five backends take turns in each: DDP, a copy of it, DDP that sleeps in each step for a given part of it, and two of Horovod's. The verdicts
are those from the first repeats of a matrix; every matrix has seeds of its own. An interval of a rate is Clopper and Pearson's.
"""

import itertools
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from common.command_line import Bounds
from launch.report import entries, epochs
from launch.report.statistics import MIN_RUNS_CONFIDENT
from tests.bench import shared
from tests.support import made_backends
from tests.support.running import copied

PLAIN, COPY, SLOWER = "ddp", "ddp_again", "ddp_slower"
BACKENDS = (PLAIN, COPY, SLOWER, "horovod_torch", "horovod_tf")
SETTINGS = ("--workloads", "cnn", "--epochs", "8", "--no-stop-at-target")
COLUMNS = ("repeats", "the copy called slower or faster", "the slowed one called slower", "all intervals hold the mean of other matrices")


@dataclass(frozen=True)
class Arguments:
    """How much is run, and how much slower a backend is."""

    num_matrices: Annotated[int, Bounds(at_least=2)] = 20
    """Matrices that are run."""
    repeats: Annotated[int, Bounds(at_least=MIN_RUNS_CONFIDENT)] = 12
    """Repeats of each."""
    percent: float = 5.0
    """The planted slow-down of a step."""


class Verdicts(NamedTuple):
    """What a number of repeats gives in each of the matrices."""

    copy_differs: list[bool]
    slower_is_found: list[bool]
    all_hold: list[bool]


def run(arguments):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkout = copied(folder)
        plain = shared.matrix(checkout, folder / "plain", *SETTINGS, "--backends", PLAIN, "--repeats", 2)
        step_seconds = np.median([epochs.seconds(record) * len(record.train_seconds) / len(record.losses) for record in plain])
        ddp = (checkout / "frameworks" / "ddp.py").read_text()
        slowed = made_backends.text("ddp", f"time.sleep({step_seconds * arguments.percent / 100})")
        for backend, source in ((COPY, ddp), (SLOWER, slowed)):
            (checkout / "frameworks" / f"{backend}.py").write_text(source)
        for _ in range(arguments.num_matrices):
            compared = ("--backends", ",".join(BACKENDS), "--repeats", arguments.repeats)
            records = shared.matrix(checkout, folder / "all", *SETTINGS, *compared)
    print(shared.head(COLUMNS))
    for num_repeats in range(MIN_RUNS_CONFIDENT, arguments.repeats + 1, 2):
        print(shared.row((num_repeats, *map(rate, verdicts(records, num_repeats)))), flush=True)


def verdicts(records, num_repeats):
    """The Verdicts on the pairs of backends in matrices of which the first repeats count."""
    by_matrix = {}
    for record in sorted(records, key=entries.key_of):
        if record.repeat < num_repeats:
            by_matrix.setdefault(entries.key_of(record)[0], {}).setdefault(record.backend, []).append(record)
    ratios = [ratios_of(records_of) for records_of in by_matrix.values()]
    return Verdicts(
        [bool(of_matrix[COPY, PLAIN].verdict) for of_matrix in ratios],
        [bool(of_matrix[SLOWER, PLAIN].verdict and of_matrix[SLOWER, PLAIN].value > 1) for of_matrix in ratios],
        [all_hold(of_matrix, [of_other for of_other in ratios if of_other is not of_matrix]) for of_matrix in ratios],
    )


def ratios_of(records_of):
    """{(backend, backend): Ratio of the seconds per epoch} of all pairs of backends, both ways, from {backend: records} of a matrix."""
    compared = [entries.Entry(backend, shared.NUM_RANKS, tuple(records)) for backend, records in records_of.items()]
    pairs = itertools.permutations(compared, 2)
    return {(above.backend, below.backend): entries.epoch_ratio(above, below, compared) for above, below in pairs}


def all_hold(ratios, ratios_of_others):
    """Whether the intervals of all pairs hold the geometric mean of the ratios of the other matrices."""
    means = {pair: math.exp(np.mean([math.log(of_other[pair].value) for of_other in ratios_of_others])) for pair in ratios}
    return all(ratio.low <= means[pair] <= ratio.high for pair, ratio in ratios.items())


def rate(outcomes):
    """How many of the outcomes are true, and the 95 % interval of their rate."""
    from scipy.stats import binomtest

    interval = binomtest(sum(outcomes), len(outcomes)).proportion_ci()
    return f"{sum(outcomes)} of {len(outcomes)} ({interval.low:.2f} to {interval.high:.2f})"


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)
