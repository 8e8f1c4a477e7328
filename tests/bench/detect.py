"""Whether the report finds a planted slow-down, and none where there is none: matrices resampled from real runs, as a table in Markdown.

python -m tests.bench.detect --num-runs 30 --percent 5

Three backends are DDP: two are the same, and the third sleeps in each step, for a given part of an epoch. They take turns in one matrix.
"""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.record.records import read_all
from launch.report import entries, epochs
from launch.report.statistics import MIN_RUNS_CONFIDENT
from tests.bench import shared
from tests.support import made_backends
from tests.support.running import BIN, copied, environ

NUM_RANKS = 2
SETTINGS = ("--workloads", "cnn", "--epochs", "4", "--no-stop-at-target", "--no-step-breakdown", "--machine", "here")
COLUMNS = ("compared", "matrices", "repeats of each", "called slower or faster", "median ratio")


@dataclass(frozen=True)
class Arguments:
    """How much is run, and how much slower a backend is."""

    num_runs: int = 30
    """Real runs of each backend."""
    percent: float = 5.0
    """The planted slow-down of an epoch."""
    num_matrices: int = 20
    """Matrices that are resampled."""


def run(arguments):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkout = copied(folder)
        plain = matrix(checkout, folder / "plain", ["ddp"], 2)
        step_seconds = np.median([epochs.seconds(record) * len(record.train_seconds) / len(record.losses) for record in plain])
        ddp = (checkout / "frameworks" / "ddp.py").read_text()
        slower = made_backends.text("ddp", f"time.sleep({step_seconds * arguments.percent / 100})")
        for backend, source in (("ddp_again", ddp), ("ddp_slower", slower)):
            (checkout / "frameworks" / f"{backend}.py").write_text(source)
        records = matrix(checkout, folder / "all", ["ddp", "ddp_again", "ddp_slower"], arguments.num_runs)
    print(shared.head(COLUMNS))
    rng = np.random.default_rng(1)
    chosen = [rng.choice(arguments.num_runs, MIN_RUNS_CONFIDENT, replace=False).tolist() for _ in range(arguments.num_matrices)]
    for backend, what in (("ddp_again", "the same backend"), ("ddp_slower", f"{arguments.percent:g} % slower")):
        pairs = [(entry(records, backend, repeats), entry(records, "ddp", repeats)) for repeats in chosen]
        ratios = [entries.epoch_ratio(*pair, pair) for pair in pairs]
        median = np.median([ratio.value for ratio in ratios])
        print(shared.row((what, len(ratios), MIN_RUNS_CONFIDENT, sum(ratio.verdict for ratio in ratios), f"{median:.3f}")))


def matrix(checkout, folder, backends, num_repeats):
    """The records of a matrix of these backends, which takes turns; its progress goes to standard error."""
    program = [BIN / "python", "-m", "launch.matrix", NUM_RANKS, "--backends", ",".join(backends), "--repeats", num_repeats]
    command = [str(part) for part in (*program, *SETTINGS, "--results", folder)]
    subprocess.run(command, cwd=checkout, env=environ(), stdout=subprocess.DEVNULL, check=True)
    return read_all(folder)


def entry(records, backend, repeats):
    """The entry of a backend that has these repeats only."""
    runs = [record for record in records if record.backend == backend and record.repeat in repeats]
    return entries.Entry(backend, NUM_RANKS, tuple(sorted(runs, key=entries.key_of)))


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)
