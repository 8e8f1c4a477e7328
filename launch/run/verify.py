"""The matrix that verifies a model of the user's own: every backend against one process, in float64."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from common.backends import ALL, BASELINE, declaration_of
from common.command_line import flag, names_in, shortened
from common.errors import UserError
from common.model import own_checks
from common.model.own_model import OwnModel
from common.record.definition import Record
from launch.report import tables
from launch.report.export import terminal
from launch.report.tables import Column
from launch.run.matrix_options import Matrix

# Relative, of the loss of a step.
BOUND = 1e-9
# Of a backend whose master parameters are float32 also here, and whose steps amplify their rounding.
BOUND_OF_FLOAT32_MASTERS = 1e-5
NUM_STEPS = 20
UNSEEDED = "model() draws other parameters in every process; draw from PyTorch's, NumPy's or Python's generator, which are seeded"
UNSEEDED_DATA = "data() or the parameters' shapes are not the same in every process"
# What the runs train with: the global batch of one process, whatever the number of ranks, and no chance.
SETTINGS = {
    "precision": "fp64", "scaling": "strong", "epochs": 1, "steps_per_epoch": NUM_STEPS, "warmup_epochs": 0.0, "dropout": False,
    "step_breakdown": False, "stop_at_target": False,
}  # fmt: skip


class Verified(NamedTuple):
    """How a run agrees with that of one process; `first_step` is the first whose loss differs by more than the bound, from 1."""

    backend: str
    num_ranks: int
    largest_difference: float | None
    bound: float
    first_step: int | None
    reason: str | None

    @property
    def verdict(self) -> str:
        return f"differs: {self.reason}" if self.reason else "agrees"


COLUMNS: tuple[Column[Verified], ...] = (
    Column("backend", lambda run: run.backend),
    Column("ranks", lambda run: run.num_ranks),
    Column("largest difference", lambda run: run.largest_difference, ".1e"),
    Column("bound", lambda run: run.bound, ".0e"),
    Column("first step above", lambda run: run.first_step),
    Column("verdict", lambda run: run.verdict),
)


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


def show(records: Sequence[Record]) -> int:
    """Prints a line for each run, and returns the exit status: 1 where one differs."""
    runs = verified(records)
    num_differing = sum(run.reason is not None for run in runs)
    answer = f"{num_differing} of {len(runs)} runs differ." if num_differing else f"All {len(runs)} runs agree."
    question = "Does each backend train the model as one process does?"
    terminal.show_result(tables.filled("verify", COLUMNS, runs), [question, answer])
    return 1 if num_differing or not runs else 0


def verified(records: Iterable[Record]) -> list[Verified]:
    """Compares runs with that of one process. Without it there is nothing to compare, and none of them is verified."""
    records = list(records)
    reference = next((record for record in records if record.backend == BASELINE and record.status == "ok"), None)
    return [_compared(record, reference) for record in records if record is not reference]


def _compared(record: Record, reference: Record | None) -> Verified:
    bound = BOUND_OF_FLOAT32_MASTERS if declaration_of(record.backend).float32_masters else BOUND
    pairs = zip(record.losses, reference.losses if reference else (), strict=False)
    differences = [
        float("inf") if loss is None or expected is None else abs(loss - expected) / max(abs(expected), 1e-300) for loss, expected in pairs
    ]
    first_step = next((step for step, difference in enumerate(differences, 1) if difference > bound), None)
    reason = _reason(record, reference, first_step)
    return Verified(record.backend, record.num_ranks, max(differences, default=None), bound, first_step, reason)


def _reason(record: Record, reference: Record | None, first_step: int | None) -> str | None:
    """Says why a run does not agree; None if it does."""
    if record.status != "ok":
        return _reason_of_failure(record)
    if reference is None:
        return f"{BASELINE} has not completed"
    differs = first_step is not None
    reasons = {
        UNSEEDED_DATA: record.workload_digest != reference.workload_digest,
        UNSEEDED: record.parameter_digests[:1] != reference.parameter_digests[:1],
        f"it took {len(record.losses)} steps, and {BASELINE} took {len(reference.losses)}": len(record.losses) != len(reference.losses),
        "a step depends on more than its batch, or the library trains otherwise": differs and record.num_ranks == 1,
        "the model has buffers: statistics of batch norm are those of a rank's batch, with every backend; SyncBatchNorm has those of all": (
            differs and record.buffers_in_sync is not None
        ),
        "the loss is no mean over samples, or a layer keeps state or draws numbers of its own": differs,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _reason_of_failure(record: Record) -> str:
    if "find_unused_parameters" in (record.error or ""):
        names = own_checks.without_gradient(OwnModel(record.settings.model, record.settings.model_args)) if record.settings.model else []
        which = shortened(", ".join(names), 100) if names else "parameters"
        return f"DDP waits for the gradient of {which}, which a step does not have (find_unused_parameters); use it, or leave it out"
    if "different parameters before training" in (record.error or ""):
        return UNSEEDED
    if "read different data" in (record.error or ""):
        return UNSEEDED_DATA
    return f"{record.status}, {record.error}"
