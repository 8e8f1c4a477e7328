"""Whether a CNN in a user's file takes the time of the built-in one: epochs of both, side by side, as a table in Markdown.

python -m tests.bench.own_cnn

The built-in CNN and that of files/cnn.py, in plain PyTorch, take turns in one process each, and in DDP on 2 ranks. Evaluation has the batch
size of the built-in one. On a quiet machine of two cores a repeat takes about a minute.
"""

import dataclasses
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console

from common.command_line import FROM_1
from common.config import Settings
from common.record import records
from common.record.definition import Record
from launch.launchers import detect
from launch.report import entries, epochs, measures
from launch.report.entries import Entry
from launch.run import lock, session
from launch.run.display import Display
from launch.run.plan import Job, plan, stamped
from tests.bench import shared
from tests.support.running import LOCK

WORKLOAD = "cnn"
FILE = Path(__file__).parent / "files" / f"{WORKLOAD}.py"
SIZES = {"single": 1, "ddp": shared.NUM_RANKS}
LIMIT_SECONDS = 600.0
COLUMNS = (
    "backend", "repeats", "seconds per epoch: built-in", "file", "ratio", "95 % interval", "ratio without evaluation", "95 % interval",
)  # fmt: skip


@dataclass(frozen=True)
class Arguments:
    """How much is run."""

    repeats: Annotated[int, FROM_1] = 6
    """Repeats of each."""
    epochs: Annotated[int, FROM_1] = 10
    """Epochs of a run."""


def run(arguments: Arguments) -> None:
    """Runs both models side by side, and prints the ratios of their times."""
    os.environ.setdefault("TANDEM_LOCK", str(LOCK))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_records = measured(jobs_of(arguments, folder), folder)
    print(shared.head(COLUMNS))
    for backend in SIZES:
        print(shared.row(cells(backend, run_records)))


def jobs_of(arguments: Arguments, folder: Path) -> list[list[Job]]:
    """Returns the jobs of both models by repeat."""
    built_in = Settings(
        device="cpu", epochs=arguments.epochs, stop_at_target=False, step_breakdown=False, results=folder, machine="here",
    )  # fmt: skip
    both = [built_in, dataclasses.replace(built_in, model=str(FILE))]
    planned = [plan([*SIZES], [WORKLOAD], sorted({*SIZES.values()}), arguments.repeats, None, settings) for settings in both]
    named = [
        job._replace(settings=dataclasses.replace(job.settings, run_id=f"{job.settings.run_id}-{side}"))
        for side, jobs in zip(("built-in", "file"), planned, strict=True)
        for job in jobs
        if job.num_ranks == SIZES[job.backend]
    ]
    jobs = stamped(named, records.new_stamp())
    return [[job for job in jobs if job.settings.repeat == repeat] for repeat in range(arguments.repeats)]


def measured(jobs_by_repeat: list[list[Job]], folder: Path) -> list[Record]:
    """Runs the jobs, those of a repeat side by side, and returns their records."""
    launcher, run_records = detect.choose(), list[Record]()
    jobs = [job for of_repeat in jobs_by_repeat for job in of_repeat]
    with lock.held(folder, jobs, share_machine=False), Display(len(jobs), Console(file=sys.stderr)) as display:
        for of_repeat in jobs_by_repeat:
            session.run_group([(jobs.index(job) + 1, job) for job in of_repeat], launcher, LIMIT_SECONDS, display, run_records, None)
    return run_records


def cells(backend: str, run_records: list[Record]) -> tuple[object, ...]:
    """Returns the row of a backend."""
    of_backend = sorted((record for record in run_records if record.backend == backend), key=entries.key_of)
    sides = [
        Entry(backend, SIZES[backend], tuple(record for record in of_backend if (record.settings.model is None) is is_built_in))
        for is_built_in in (True, False)
    ]
    built_in, file = sides
    texts = []
    for seconds_of in (epochs.seconds, epochs.training_seconds):
        ratio = measures.epoch_ratio(file, built_in, sides, seconds_of)
        has_interval = ratio is not None and ratio.low is not None
        texts += [f"{ratio.value:.3f}" if ratio else "-", f"{ratio.low:.3f} to {ratio.high:.3f}" if ratio and has_interval else "-"]
    return backend, len(file.ok), *(f"{measures.epoch_seconds(side):.4f}" for side in sides), *texts


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)
