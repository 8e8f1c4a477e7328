"""The matrix that verifies a model of the user's own: every backend against one process, in float64."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from common import workloads
from common.backends import ALL
from common.command_line import flag, names_in
from common.data import sharding
from common.declarations import BASELINE
from common.errors import UserError
from common.record.definition import Record
from common.terminal import Table, filled, print_tables
from launch.launchers.machine_files import Machine
from launch.run.options import Matrix
from launch.run.plan import Job
from launch.run.verified import Verified, verified

QUESTION = "Does each backend train the model as one process does?"
NUM_STEPS = 20
# What the runs train with: the global batch of one process, whatever the number of ranks, and no chance.
SETTINGS = {
    "precision": "fp64", "scaling": "strong", "epochs": 1, "warmup_epochs": 0.0, "dropout": False,
    "step_breakdown": False, "stop_at_target": False,
}  # fmt: skip


def applied(matrix: Matrix) -> Matrix:
    """Returns the matrix with the settings of a verification, and with one process. Raises UserError where it contradicts them."""
    if matrix.run.model is None:
        raise UserError("--verify is for --model: of Tandem's own workloads the tests show that the backends agree")
    defaults = type(matrix.run)()
    given = [flag(name) for name in SETTINGS if getattr(matrix.run, name) != getattr(defaults, name)]
    if given or matrix.repeats != 1:
        raise UserError(f"--verify has settings of its own; leave {', '.join(given or ['--repeats'])} out")
    backends = names_in(matrix.backends) if matrix.backends else []
    is_chosen = not backends or matrix.backends == ALL or BASELINE in backends
    return dataclasses.replace(
        matrix,
        sizes=tuple(sorted({1, *matrix.sizes})),
        backends=matrix.backends if is_chosen else f"{BASELINE},{matrix.backends}",
        run=dataclasses.replace(matrix.run, **SETTINGS),
    )


def shortened(machine: Machine) -> Machine:
    """Returns the machine with the number of steps of a verification among the variables of every rank."""
    return dataclasses.replace(machine, variables=machine.variables | {sharding.STEPS_VARIABLE: str(NUM_STEPS)})


def with_references(jobs: Sequence[Job]) -> list[Job]:
    """Adds the runs of one process whose micro-batches are the batches of the ranks, for a model with buffers, such as statistics."""
    return [*jobs, *_by_rank(jobs)]


def _by_rank(jobs: Sequence[Job]) -> Iterator[Job]:
    plain = next((job for job in jobs if job.backend == BASELINE), None)
    if plain is None or not workloads.workload_of(plain.settings).model.has_buffers():
        return
    batch_size = plain.settings.batch_size or workloads.workload_of(plain.settings).batch_size
    for num_ranks in sorted({job.num_ranks for job in jobs} - {1}):
        # A batch that cannot be divided is refused for the ranks.
        if batch_size % num_ranks == 0:
            of_ranks = {"batch_size": batch_size // num_ranks, "accumulate": plain.settings.accumulate * num_ranks}
            run_id = f"{plain.settings.run_id}-by-{num_ranks}"
            yield plain._replace(settings=dataclasses.replace(plain.settings, **of_ranks, run_id=run_id))


def show(records: Sequence[Record], write_page: Callable[[str, list[str], list[Table]], list[str]]) -> int:
    """Prints a line for each run and returns the exit status: 1 where one differs.

    `write_page` takes the question, sentences and tables for a page, and returns lines that say where it is.
    """
    runs = verified(records)
    rows = [
        {
            "backend": run.backend, "ranks": run.num_ranks, "largest difference": run.largest_difference,
            # Only where the model has buffers.
            "from its micro-batches": run.difference_by_rank,
            "bound": run.bound, "first step above": run.first_step, "verdict": run.verdict,
        }
        for run in runs
    ]  # fmt: skip
    sentences, tables = answer(runs), filled("verify", rows)
    print_tables(tables, [QUESTION, *sentences, *write_page(QUESTION, sentences, tables)])
    return 1 if not runs or any(run.reason for run in runs) else 0


def answer(runs: Sequence[Verified]) -> list[str]:
    """Returns how many runs differ, and what to do about statistics by rank."""
    num_differing, num_by_rank = sum(run.reason is not None for run in runs), sum(run.is_by_rank for run in runs)
    lines = [f"{num_differing} of {len(runs)} runs differ." if num_differing else f"All {len(runs)} runs agree."]
    if num_by_rank:
        lines.append(
            f"{num_by_rank} of them with the micro-batches of one process: batch norm has the statistics of a rank's batch, "
            "with every backend. On GPUs SyncBatchNorm has those of all ranks."
        )
    return lines
