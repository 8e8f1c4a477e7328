"""Which learning rate and target every size reaches: a search in one process, as tables in Markdown.

python -m tests.bench.targets cnn --learning-rates 0.005 0.01 --targets 0.95 0.96 0.97

Under an exact backend N ranks train what one rank trains with the global batch and the learning rates of N. A target is one that every run
reaches, in at most twice the epochs from one size to the next: with more, a larger size takes more steps, and could never be faster.
"""

import contextlib
import dataclasses
import itertools
import os
import shlex
import sys
from dataclasses import dataclass
from typing import Annotated
from unittest import mock

from common import command_line, workloads
from common.bounds import FROM_0, FROM_1
from common.command_line import Positional
from common.config import Settings, check
from common.data import datasets
from common.errors import UserError
from common.ranks.launcher_variables import Ranks
from common.ranks.watchdog import Watchdog
from common.record import definition, environment
from common.training import loop, program

PROGRAM = "python -m tests.bench.targets"


@dataclass(frozen=True)
class Search:
    """What is tried. None: the workload's default."""

    workload: Annotated[str, Positional]
    """A workload with a target."""
    learning_rates: tuple[float, ...] | None = None
    """Learning rates of one rank."""
    targets: tuple[float, ...] | None = None
    """Candidate targets. A run ends at the highest."""
    sizes: Annotated[tuple[int, ...], FROM_1] = (1, 2, 4, 8, 16)
    """Numbers of ranks, under weak scaling."""
    seeds: Annotated[int, FROM_1] = 10
    """Number of seeds."""
    first_seed: Annotated[int, FROM_0] = 1
    """The first seed. A target that was chosen on some seeds is verified on others."""
    settings: str = ""
    """Other settings of all runs, in one argument: --settings="--epochs 12 --warmup-epochs 1"."""


def run(search):
    """Trains all runs and prints a table. Raises UserError for invalid arguments."""
    settings, targets = prepared(search)
    columns = ["learning rate", "ranks", *(f"epochs to {target:g}" for target in targets)]
    print(row(columns), row(["---"] * len(columns)), sep="\n", flush=True)
    for learning_rate, size in itertools.product(search.learning_rates or (settings.learning_rate,), search.sizes):
        curves = []
        for seed in range(search.first_seed, search.first_seed + search.seeds):
            curves.append(train(dataclasses.replace(settings, learning_rate=learning_rate, seed=seed), size))
            print(f"{learning_rate:g}  ranks {size}  seed {seed}: {curves[-1]}", file=sys.stderr, flush=True)
        epochs = ([epochs_to(accuracies, target) for accuracies in curves] for target in targets)
        print(row([f"{learning_rate:g}", size, *map(cell, epochs)]), flush=True)
    return 0


def prepared(search):
    """Returns (settings of one rank, ascending targets). Raises UserError for invalid arguments."""
    parsed = command_line.parse(Settings, PROGRAM, "", shlex.split(search.settings))
    settings = workloads.resolve(dataclasses.replace(parsed, workload=search.workload), 1)
    if settings.target is None:
        raise UserError(f"{search.workload} has no target; choose another workload")
    targets = sorted(search.targets or (settings.target,))
    for target, learning_rate in itertools.product(targets, search.learning_rates or (settings.learning_rate,)):
        check(dataclasses.replace(settings, target=target, learning_rate=learning_rate))
    return dataclasses.replace(settings, target=targets[-1]), targets


def train(settings, size):
    """The accuracies after each epoch of a run that trains as `size` ranks do."""
    from frameworks.single import Trainer

    of_size = dataclasses.replace(settings, batch_size=settings.batch_size * size)
    launch = {"launcher": "alone", "command": PROGRAM, "launched_at": None}
    record = definition.new("single", of_size, Ranks(), workloads.batch_plan(of_size, 1), launch, environment.describe(of_record=False))
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        mock.patch.object(workloads, "learning_rate_factor", return_value=float(size)),
    ):
        program.prepare_process(Ranks(), of_size)
        trainer = Trainer(of_size)
        turns = loop.prepare(trainer, of_size, record)
        loop.train(trainer, of_size, datasets.loader(of_size), record, lambda _: PROGRAM, Watchdog(0, None), turns)
    return record.accuracies


def epochs_to(accuracies, target):
    """Number of epochs to the first accuracy that meets the target; None where none does."""
    return next((epoch for epoch, accuracy in enumerate(accuracies, 1) if accuracy >= target), None)


def cell(epochs):
    """The epochs of some runs in few characters: their range, and how many of them reached the target where some did not."""
    reached = [number for number in epochs if number is not None]
    if not reached:
        return "none"
    span = f"{min(reached)}" if min(reached) == max(reached) else f"{min(reached)}-{max(reached)}"
    return span if len(reached) == len(epochs) else f"{span} ({len(reached)} of {len(epochs)})"


def row(cells):
    """A row of a table in Markdown."""
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    command_line.main(run, Search, PROGRAM, __doc__.splitlines()[0])
