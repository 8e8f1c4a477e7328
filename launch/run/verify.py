"""The matrix that verifies workloads: every backend against one process, in float64, and why one differs."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from common import apart, workloads
from common.backends import ALL, declaration_of
from common.command_line import flag, names_in, shortened
from common.data import sharding
from common.declarations import BASELINE
from common.errors import UserError
from common.model.description import Model
from common.record import comparison
from common.record.definition import Record
from common.terminal import Table, filled, print_tables
from launch.launchers.machine_files import Machine
from launch.run import verify_causes
from launch.run.options import Matrix
from launch.run.plan import Job

Answer = TypeVar("Answer")

# Relative, of the loss of a step.
BOUND = 1e-9
# Of a backend whose master parameters are float32 also here, and whose steps amplify their rounding.
BOUND_OF_FLOAT32_MASTERS = 1e-5
UNSEEDED = "model() draws other parameters in every process; draw from PyTorch's, NumPy's or Python's generator, which are seeded"
UNSEEDED_DATA = "data() or the parameters' shapes are not the same in every process"
AT_ONE_RANK = "a step depends on more than its batch, or the library trains otherwise"
BESIDE_STATISTICS = "statistics by rank do not explain it: one process with the micro-batches of the ranks differs too"
UNKNOWN = "nothing is found in the file: the library trains otherwise"
# DDP's numbers of the parameters without a gradient in a step.
WITHOUT_GRADIENT = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")
# The reasons of failures by a part of their errors.
FAILURES = {
    "different parameters before training": UNSEEDED,
    "read different data": UNSEEDED_DATA,
    "__init__() missing": "the library makes the class of optimizer() anew from the parameters alone; give its other arguments defaults",
    "mixed torch.Tensor and DTensor": "optimizer() or the model computes with plain tensors of its own beside FSDP's shards (DTensor)",
}


class Verified(NamedTuple):
    """How a run agrees with that of one process; `first_step` is the first whose loss differs by more than the bound, from 1.

    `difference_by_rank` is the largest from one process whose micro-batches are the batches of the ranks; None without such a run.
    """

    workload: str
    backend: str
    num_ranks: int
    largest_difference: float | None
    difference_by_rank: float | None
    bound: float
    first_step: int | None
    reason: str | None

    @property
    def is_by_rank(self) -> bool:
        """Whether the run agrees with one process only where the micro-batches of that are the batches of the ranks."""
        return self.first_step is not None and self.reason is None

    @property
    def verdict(self) -> str:
        if self.is_by_rank:
            return f"as {self.num_ranks} micro-batches of one process; statistics are by rank"
        return f"differs: {self.reason}" if self.reason else "agrees"


QUESTION = "Does each backend train the model as one process does?"
NUM_STEPS = 20
# What the runs train with: the global batch of one process, whatever the number of ranks, and no chance.
SETTINGS = {
    "precision": "fp64", "scaling": "strong", "epochs": 1, "warmup_epochs": 0.0, "dropout": False,
    "step_breakdown": False, "stop_at_target": False,
}  # fmt: skip


def applied(matrix: Matrix) -> Matrix:
    """Returns the matrix with the settings of a verification, and with one process. Raises UserError where it contradicts them."""
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


def with_few_steps(machine: Machine) -> Machine:
    """Returns the machine with the number of steps of a verification among the variables of every rank."""
    return dataclasses.replace(machine, variables=machine.variables | {sharding.STEPS_VARIABLE: str(NUM_STEPS)})


def with_references(jobs: Sequence[Job]) -> list[Job]:
    """Adds the runs of one process whose micro-batches are the batches of the ranks, for a model with buffers, such as statistics."""
    sizes = sorted({job.num_ranks for job in jobs} - {1})
    return [*jobs, *(reference for job in jobs if job.backend == BASELINE for reference in _by_rank(job, sizes))]


def _by_rank(plain: Job, sizes: Iterable[int]) -> Iterator[Job]:
    workload = workloads.workload_of(plain.settings)
    if not workload.model.has_buffers():
        return
    batch_size = plain.settings.batch_size or workload.batch_size
    for num_ranks in sizes:
        # A batch that cannot be divided is refused for the ranks.
        if batch_size % num_ranks == 0:
            of_ranks = {"batch_size": batch_size // num_ranks, "accumulate": plain.settings.accumulate * num_ranks}
            run_id = f"{plain.settings.run_id}-by-{num_ranks}"
            yield plain._replace(settings=dataclasses.replace(plain.settings, **of_ranks, run_id=run_id))


def show(records: Sequence[Record], write_page: Callable[[str, list[str], list[Table]], list[str]]) -> int:
    """Prints a line for each run and returns the exit status: 1 where one differs.

    `write_page` takes the question, sentences and tables for a page, and returns lines that say where it is.
    """
    runs = sorted(verified(records), key=lambda run: (run.workload, run.num_ranks, run.backend))
    rows = [
        {
            "workload": run.workload, "backend": run.backend, "ranks": run.num_ranks, "largest difference": run.largest_difference,
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


def verified(records: Iterable[Record]) -> list[Verified]:
    """Compares runs with those of one process. Without it there is nothing to compare, and none of them is verified."""
    records = list(records)
    completed = [record for record in records if record.backend == BASELINE and record.status == "ok"]
    references = {(record.workload, record.settings.accumulate): record for record in completed}
    return [_compared(record, references) for record in records if record.backend != BASELINE or record.status != "ok"]


def _compared(record: Record, references: dict[tuple[str, int], Record]) -> Verified:
    """Compares a run with those of one process, by workload and number of micro-batches."""
    bound = BOUND_OF_FLOAT32_MASTERS if declaration_of(record.backend).float32_masters else BOUND
    num_micro_batches = record.settings.accumulate
    reference = references.get((record.workload, num_micro_batches))
    by_rank = references.get((record.workload, num_micro_batches * record.num_ranks)) if record.num_ranks > 1 else None
    differences, differences_by_rank = _differences(record, reference), _differences(record, by_rank)
    first_step = next((step for step, difference in enumerate(differences, 1) if difference > bound), None)
    largest_by_rank = max(differences_by_rank, default=None)
    agrees = first_step is None or (largest_by_rank is not None and largest_by_rank <= bound)
    reason = _reason(record, reference) or (None if agrees else _cause(record, largest_by_rank))
    largest = max(differences, default=None)
    return Verified(record.workload, record.backend, record.num_ranks, largest, largest_by_rank, bound, first_step, reason)


def _differences(record: Record, reference: Record | None) -> list[float]:
    """Returns the relative differences of the losses of two runs, step by step."""
    pairs = zip(record.losses, reference.losses if reference else (), strict=False)
    return [
        float("inf") if loss is None or expected is None else abs(loss - expected) / max(abs(expected), 1e-300) for loss, expected in pairs
    ]


def _reason(record: Record, reference: Record | None) -> str | None:
    """Returns why a run cannot be compared with that of one process; None if it can."""
    if record.status != "ok":
        return _reason_of_failure(record)
    if reference is None:
        return f"{BASELINE} has not completed"
    reasons = {
        UNSEEDED_DATA: record.workload_digest != reference.workload_digest,
        UNSEEDED: record.parameter_digests[:1] != reference.parameter_digests[:1],
        f"it took {len(record.losses)} steps, and {BASELINE} took {len(reference.losses)}": len(record.losses) != len(reference.losses),
        f"it trained {(difference := comparison.sample_difference(record, reference))} than {BASELINE}": difference is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _cause(record: Record, difference_by_rank: float | None) -> str:
    """Returns why a run that has completed differs."""
    causes = []
    for cause_of in (verify_causes.of_ranks, verify_causes.of_optimizer)[record.num_ranks == 1 :]:
        try:
            causes.append(_asked(cause_of, workloads.workload_of(record.settings).model))
        except UserError:
            continue
    unknown = AT_ONE_RANK if record.num_ranks == 1 else UNKNOWN if difference_by_rank is None else BESIDE_STATISTICS
    return "; ".join(filter(None, causes)) or unknown


@functools.cache
def _asked(function: Callable[[Model], Answer], model: Model) -> Answer:
    return apart.call("the model", function, model)


def _reason_of_failure(record: Record) -> str:
    error = record.error or ""
    if "find_unused_parameters" in error:
        which = "parameters"
        if numbers := WITHOUT_GRADIENT.search(error):
            names = _asked(verify_causes.trained, workloads.workload_of(record.settings).model)
            which = shortened(", ".join(names[int(number)] for number in numbers[1].split()), 100)
        return f"DDP waits for the gradient of {which}, which a step does not have (find_unused_parameters); use it, or leave it out"
    return next((reason for part, reason in FAILURES.items() if part in error), f"{record.status}, {error}")
