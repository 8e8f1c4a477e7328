"""Which learning rate and target every size reaches, and broken runs do not: a search in one process, as tables in Markdown.

python -m tests.bench.targets cnn --learning-rates 0.005 0.01 --targets 0.95 0.96 0.97

Under an exact backend N ranks train what one rank trains with the global batch and the learning rates of N. A fault is what the
first rank trains where all ranks read its shard (as it does where nothing is averaged), or where gradients are summed. A target is one that
every correct run reaches, in fewer than twice the epochs from one size to the next, and few broken runs do.
"""

import contextlib
import dataclasses
import itertools
import os
import shlex
import sys
import time
from dataclasses import dataclass
from typing import Annotated, NamedTuple
from unittest import mock

from common import command_line, workloads
from common.bounds import FROM_0, FROM_1
from common.command_line import Positional
from common.config import Settings, check
from common.data import datasets, sharding
from common.errors import UserError
from common.ranks.launcher_variables import Ranks
from common.ranks.watchdog import Watchdog
from common.record import definition, environment
from common.training import loop, program

PROGRAM = "python -m tests.bench.targets"
# The fault of a run that is as it should be.
CORRECT = "correct"


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
    """Number of seeds of correct runs."""
    fault_seeds: Annotated[int, FROM_0] = 3
    """Number of seeds of broken runs."""
    first_seed: Annotated[int, FROM_0] = 1
    """The first seed. A target that was chosen on some seeds is verified on others."""
    settings: str = ""
    """Other settings of all runs, in one argument: --settings="--epochs 12 --warmup-epochs 1"."""


class Curve(NamedTuple):
    """Accuracy after each epoch of a run that trains as `size` ranks do."""

    learning_rate: float
    fault: str
    size: int
    seed: int
    accuracies: tuple[float, ...]


def one_shard(size):
    """A training_shard that gives the shard of the first of `size` ranks."""
    training_shard = sharding.training_shard
    return lambda epoch, _, num_losses: training_shard(epoch, sharding.DataParallel(0, size), num_losses)


def summed(size):
    """A training_shard whose loss, and so its gradient, is that of a mean over `size` ranks where their sum is taken."""
    training_shard = sharding.training_shard

    def shard(*arguments):
        indices, weights = training_shard(*arguments)
        return indices, weights * size

    return shard


FAULTS = {"one shard": one_shard, "summed": summed}


def run(search):
    """Trains all runs and prints a table for each learning rate. Raises UserError for invalid arguments."""
    settings, targets = prepared(search)
    rates = search.learning_rates or (settings.learning_rate,)
    jobs = [
        (fault, size, seed)
        for fault, num_seeds in ((CORRECT, search.seeds), *((fault, search.fault_seeds) for fault in FAULTS))
        for size, seed in itertools.product(search.sizes, range(search.first_seed, search.first_seed + num_seeds))
        if fault == CORRECT or size > 1
    ]
    curves, started = [], time.perf_counter()
    for learning_rate in rates:
        for fault, size, seed in jobs:
            of_run = dataclasses.replace(settings, learning_rate=learning_rate, seed=seed)
            curves.append(Curve(learning_rate, fault, size, seed, train(of_run, size, fault)))
            report(curves, len(rates) * len(jobs), time.perf_counter() - started)
        print(table([curve for curve in curves if curve.learning_rate == learning_rate], targets), flush=True)
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


def train(settings, size, fault):
    """The accuracies after each epoch of a run that trains as `size` ranks do."""
    from frameworks.single import Trainer

    of_size = dataclasses.replace(settings, batch_size=settings.batch_size * size)
    launch = {"launcher": "alone", "command": PROGRAM, "launched_at": None}
    record = definition.new("single", of_size, Ranks(), workloads.batch_plan(of_size, 1), launch, environment.describe(of_record=False))
    load = datasets.loader(of_size)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
        stack.enter_context(mock.patch.object(workloads, "learning_rate_factor", return_value=float(size)))
        if fault != CORRECT:
            stack.enter_context(mock.patch.object(sharding, "training_shard", FAULTS[fault](size)))
        program.prepare_process(Ranks(), of_size, record)
        trainer = Trainer(of_size)
        turns = loop.prepare(trainer, of_size, record)
        loop.train(trainer, of_size, load, record, lambda _: "", Watchdog(0, None), turns)
    return tuple(record.accuracies)


def report(curves, num_runs, seconds):
    """One line on standard error about the last run, and how long the others will take."""
    last = curves[-1]
    minutes_left = seconds / 60 / len(curves) * (num_runs - len(curves))
    progress = f"{len(curves)}/{num_runs}  {minutes_left:.0f} min left"
    accuracies = " ".join(f"{accuracy:.3f}" for accuracy in last.accuracies)
    text = f"{progress}  {last.learning_rate:g}  {last.fault}  ranks {last.size}  seed {last.seed}: {accuracies}"
    print(text, file=sys.stderr, flush=True)


def epochs_to(accuracies, target):
    """Number of epochs to the first accuracy that meets the target; None where none does."""
    return next((epoch for epoch, accuracy in enumerate(accuracies, 1) if accuracy >= target), None)


def epochs_by_size(curves, target):
    """Returns {size: epochs of each run to the target, None where a run does not reach it}, by size."""
    epochs = {}
    for curve in sorted(curves, key=lambda curve: (curve.size, curve.seed)):
        epochs.setdefault(curve.size, []).append(epochs_to(curve.accuracies, target))
    return epochs


def cell(epochs):
    """The epochs of some runs in few characters: their range, and how many of them reached the target where some did not."""
    reached = [number for number in epochs if number is not None]
    if not reached:
        return "none"
    span = f"{min(reached)}" if min(reached) == max(reached) else f"{min(reached)}-{max(reached)}"
    return span if len(reached) == len(epochs) else f"{span} ({len(reached)} of {len(epochs)})"


def table(curves, targets):
    """The epochs to each target, by fault and number of ranks, of runs at one learning rate."""
    columns = ["learning rate", "run", "ranks", *(f"epochs to {target:g}" for target in targets)]
    lines = [row(columns), row(["---"] * len(columns))]
    for fault in (CORRECT, *FAULTS):
        by_target = [epochs_by_size([curve for curve in curves if curve.fault == fault], target) for target in targets]
        for size in by_target[0]:
            cells = (cell(by_size[size]) for by_size in by_target)
            lines.append(row((f"{curves[0].learning_rate:g}", fault, size, *cells)))
    return "\n".join(lines) + "\n"


def row(cells):
    """A row of a table in Markdown."""
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    command_line.main(run, Search, PROGRAM, __doc__.splitlines()[0])
