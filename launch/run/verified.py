"""How the runs of a verification agree with those of one process, and why one does not."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from common.backends import declaration_of
from common.command_line import shortened
from common.declarations import BASELINE
from common.errors import UserError
from common.model import user_causes, user_checks
from common.model.user_model import UserModel
from common.record import samples
from common.record.definition import Record

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


def verified(records: Iterable[Record]) -> list[Verified]:
    """Compares runs with those of one process. Without it there is nothing to compare, and none of them is verified."""
    records = list(records)
    references = {record.settings.accumulate: record for record in records if record.backend == BASELINE and record.status == "ok"}
    return [_compared(record, references) for record in records if record.backend != BASELINE or record.status != "ok"]


def _compared(record: Record, references: dict[int, Record]) -> Verified:
    """Compares a run with those of one process, by their numbers of micro-batches."""
    bound = BOUND_OF_FLOAT32_MASTERS if declaration_of(record.backend).float32_masters else BOUND
    num_micro_batches = record.settings.accumulate
    reference = references.get(num_micro_batches)
    by_rank = references.get(num_micro_batches * record.num_ranks) if record.num_ranks > 1 else None
    differences, differences_by_rank = _differences(record, reference), _differences(record, by_rank)
    first_step = next((step for step, difference in enumerate(differences, 1) if difference > bound), None)
    largest_by_rank = max(differences_by_rank, default=None)
    agrees = first_step is None or (largest_by_rank is not None and largest_by_rank <= bound)
    reason = _reason(record, reference) or (None if agrees else _cause(record, largest_by_rank))
    return Verified(record.backend, record.num_ranks, max(differences, default=None), largest_by_rank, bound, first_step, reason)


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
        f"it trained {(difference := samples.difference(record, reference))} than {BASELINE}": difference is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _cause(record: Record, difference_by_rank: float | None) -> str:
    """Returns why a run that has completed differs."""
    causes = []
    if model := _model_of(record):
        for cause_of in (user_causes.of_ranks, user_causes.of_optimizer)[record.num_ranks == 1 :]:
            try:
                causes.append(cause_of(model))
            except UserError:
                continue
    unknown = AT_ONE_RANK if record.num_ranks == 1 else UNKNOWN if difference_by_rank is None else BESIDE_STATISTICS
    return "; ".join(filter(None, causes)) or unknown


def _model_of(record: Record) -> UserModel | None:
    return UserModel(record.settings.model, record.settings.model_args) if record.settings.model else None


def _reason_of_failure(record: Record) -> str:
    error = record.error or ""
    if "find_unused_parameters" in error:
        model, numbers = _model_of(record), WITHOUT_GRADIENT.search(error)
        names = user_checks.trained(model) if model else []
        which = shortened(", ".join(names[int(number)] for number in numbers[1].split()), 100) if names and numbers else "parameters"
        return f"DDP waits for the gradient of {which}, which a step does not have (find_unused_parameters); use it, or leave it out"
    return next((reason for part, reason in FAILURES.items() if part in error), f"{record.status}, {error}")
