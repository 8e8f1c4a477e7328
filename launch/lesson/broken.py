"""Four broken trainings beside a right one: the loss of each falls, and Tandem's checks find them.

python -m launch.lesson.broken [RANKS] [OPTIONS OF python -m frameworks.gradient_averaging], such as 4 --epochs 6 --seed 2

A fault replaces one function of a backend that averages by hand, or of the data that all backends share. Ranks that are started with the
name of one of FAULTS before their options train with it, and their record has it as the name of the backend.
"""

import json
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from common.data import sharding
from common.declarations import BASELINE, ROOT
from common.ranks.launcher_variables import from_environment
from common.record import files
from common.record.definition import Record
from common.terminal import Cell, Table, filled, print_tables
from common.words import ranks_of
from frameworks.shared.replaced import Replacement, replaced
from launch.launchers import detect
from launch.launchers.commands import THREADS_VARIABLE, Start, shell_command
from launch.lesson import running
from launch.run import processes, turns

RIGHT = "gradient_averaging"
TIME_LIMIT_SECONDS = 3600.0
# Of the relative difference of a loss.
BOUND = 1e-9
# In float64 and with the same global batch at all sizes, where every step of a right run has the loss of one process.
TRAINING = (
    "--workload", "cnn", "--precision", "fp64", "--scaling", "strong", "--epochs", "3", "--no-stop-at-target", "--no-step-breakdown",
)  # fmt: skip
HINT = "A difference from step 1 on is in the samples, from step 2 on in the gradients, and from the second epoch on in the order."


def no_all_reduce(backend: ModuleType) -> Replacement:
    """Gradients are not exchanged: each rank trains a model of its own."""
    return backend.Trainer, "average_gradients", lambda _: None


def same_shard(_: ModuleType) -> Replacement:
    """Every rank reads the shard of rank 0: the other samples of a batch are never seen."""
    training_shard = sharding.training_shard
    return sharding, "training_shard", lambda epoch, of_rank, num_losses: training_shard(epoch, of_rank._replace(number=0), num_losses)


def summed_gradients(backend: ModuleType) -> Replacement:
    """Gradients are summed, not averaged: the learning rate is multiplied by the number of ranks."""
    unpack = backend.vector_to_parameters
    return backend, "vector_to_parameters", lambda vector, parts: unpack(vector * from_environment().size, parts)


def same_order(_: ModuleType) -> Replacement:
    """set_epoch is forgotten: every epoch has the order of samples of the first."""
    training_shard = sharding.training_shard
    return sharding, "training_shard", lambda epoch, of_rank, num_losses: training_shard(epoch._replace(number=0), of_rank, num_losses)


FAULTS = {function.__name__: function for function in (no_all_reduce, same_shard, summed_gradients, same_order)}


def train(name: str, num_ranks: int, options: Iterable[str], folder: Path) -> Record:
    """Trains with a backend or with a fault. Ends the process if there is no record."""
    launcher = detect.choose()
    module = ("launch.lesson.broken", name) if name in FAULTS else (f"frameworks.{name}",)
    program = (*launcher.python, "-m", *module, *TRAINING, *options, "--results", str(folder), "--run-id", name)
    start = Start(launcher, num_ranks, num_ranks, 1, program, {THREADS_VARIABLE: "1"} | launcher.variables)
    variables = start.variables | {"TANDEM_LAUNCH": json.dumps({"launcher": launcher.name, "command": shell_command(start)})}
    print(f"training with {ranks_of(num_ranks)}: {name}", flush=True)
    mark = f"lesson-{os.uname().nodename}-{os.getpid()}-{name}"
    is_here = not launcher.runs_elsewhere(start.num_nodes)
    outcome = turns.alone(processes.run(start.argv(), variables, mark, ROOT, TIME_LIMIT_SECONDS, lambda _: None, is_here=is_here))
    if not (paths := [*folder.glob(f"*/{name}.json")]):
        print("\n".join(outcome.last_lines), file=sys.stderr)
        sys.exit(outcome.returncode)
    return files.read(paths[0])


def table_of(reference: Record, *records: Record) -> list[Table]:
    """Makes a table with a row for each run beside the reference, which is that of one process."""

    def row(record: Record) -> dict[str, Cell]:
        pairs = zip(record.losses, reference.losses, strict=False)
        differences = [math.inf if loss is None or expected is None else abs(loss / expected - 1) for loss, expected in pairs]
        first_step = next((step for step, difference in enumerate(differences, 1) if difference > BOUND), None)
        differs = "agrees with one process" if first_step is None else f"differs from one process from step {first_step} on"
        first_and_last = ("not finite" if loss is None else f"{loss:.2f}" for loss in record.losses[:1] + record.losses[-1:])
        return {
            "run": record.backend,
            "loss": " to ".join(first_and_last),
            "accuracy": record.accuracy,
            "what the checks say": record.error or differs,
            "largest difference": max(differences, default=None),
        }

    return filled("", map(row, records))


def train_with(fault: str) -> None:
    """Trains with a fault until the process of this rank ends."""
    from common.training import program
    from frameworks import gradient_averaging

    with replaced(FAULTS[fault](gradient_averaging)):
        program.main(gradient_averaging.Trainer, f"{fault}.py")


def main() -> None:
    """Runs the lesson."""
    ranks, options = running.arguments("2")
    folder = running.new_folder("broken")
    runs = {BASELINE: 1, RIGHT: int(ranks)} | dict.fromkeys(FAULTS, int(ranks))
    tables = table_of(*[train(name, num_ranks, options, folder) for name, num_ranks in runs.items()])
    print_tables(tables, [*(f"{name}: {fault.__doc__}" for name, fault in FAULTS.items()), HINT])


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in FAULTS:
        train_with(sys.argv.pop(1))
    else:
        main()
