"""The matrix that verifies workloads: every backend against one process, in float64, and why one differs."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from common import workloads
from common.backends import ALL, declaration_of
from common.command_line import flag, names_in, shortened
from common.config import Settings
from common.data import sharding
from common.declarations import BASELINE
from common.errors import UserError
from common.record import comparison
from common.record.definition import Record
from common.terminal import filled, print_tables
from launch.launchers.machine_files import Machine
from launch.run import experiments
from launch.run.experiments import Examination
from launch.run.options import Matrix
from launch.run.plan import Job

Answer = TypeVar("Answer")

# Relative, of the loss of a step, and of a backend whose master parameters are float32 also here, and whose steps amplify their rounding.
BOUND, BOUND_OF_FLOAT32_MASTERS = 1e-9, 1e-5
# Training amplifies rounding: after the first steps a difference counts that is this large, and so many times that of all steps before.
LATE_BOUND, JUMP = 1e-6, 1e3
NO_CAUSE = "no cause is found"
# The causes of failures by a part of their errors.
FAILURES = {
    "__init__() missing": "the library makes the class of optimizer() anew from the parameters alone; give its other arguments defaults",
    "mixed torch.Tensor and DTensor": "optimizer() or the model computes with plain tensors of its own beside FSDP's shards (DTensor)",
    **dict.fromkeys(
        ("find_unused_parameters", "collective mismatch"),
        "a step leaves out a part of the model, whose gradients the library waits for; give the file FIND_UNUSED = True",
    ),
}
# Errors whose cause lies in what the ranks have before they train.
OF_PROCESSES = ("different parameters before training", "read different data")


class Verified(NamedTuple):
    """How a run agrees with that of one process; `first_step` is the first whose loss differs by more than the bound, from 1.

    `difference_by_rank` is the largest from one process whose micro-batches are the batches of the ranks; None without such a run.
    `problem` says what differs, and `cause` why, as experiments have found; None where they find nothing.
    """

    workload: str
    backend: str
    num_ranks: int
    largest_difference: float | None
    difference_by_rank: float | None
    bound: float
    first_step: int | None
    problem: str | None
    cause: str | None

    @property
    def is_by_rank(self) -> bool:
        """Whether the run agrees with one process only where the micro-batches of that are the batches of the ranks."""
        return self.first_step is not None and self.problem is None

    @property
    def verdict(self) -> str:
        if self.is_by_rank:
            return f"as {self.num_ranks} micro-batches of one process; statistics are by rank"
        if self.problem is None:
            return "agrees"
        return f"wrong: {self.cause}" if self.cause else f"{self.problem}; {NO_CAUSE}"


QUESTION = "Does each backend train the model as one process does?"
NUM_STEPS = 20
# Without --epochs an epoch is trained as far as this takes one process, at this many seconds a step at least.
EPOCH_SECONDS, STEP_SECONDS = 5.0, 0.01
# What the runs train with: the global batch of one process, whatever the number of ranks, and no chance.
SETTINGS = {
    "precision": "fp64", "scaling": "strong", "warmup_epochs": 0.0, "dropout": False,
    "step_breakdown": False, "stop_at_target": False,
}  # fmt: skip


def applied(matrix: Matrix) -> Matrix:
    """Returns the matrix with the settings of a verification, and with one process. Raises UserError where it contradicts them."""
    defaults = type(matrix.run)()
    flags = [flag(name) for name in SETTINGS if getattr(matrix.run, name) != getattr(defaults, name)]
    if flags or matrix.repeats != 1:
        raise UserError(f"--verify has settings of its own; leave {', '.join(flags or ['--repeats'])} out")
    backends = names_in(matrix.backends) if matrix.backends else []
    is_chosen = not backends or matrix.backends == ALL or BASELINE in backends
    return dataclasses.replace(
        matrix,
        sizes=tuple(sorted({1, *matrix.sizes})),
        backends=matrix.backends if is_chosen else f"{BASELINE},{matrix.backends}",
        run=dataclasses.replace(matrix.run, **SETTINGS, epochs=matrix.run.epochs or 1),
    )


def with_few_steps(machine: Machine, settings: Settings, workload_names: Sequence[str], is_run: bool) -> Machine:
    """Returns the machine with the number of steps of an epoch among the variables of every rank: 20, or more of those that are short.

    How long they take is only asked for what is run. Raises UserError where the code of a user's file fails.
    """
    examinations = [examined(dataclasses.replace(settings, **workloads.located(name))) for name in workload_names if is_run]
    num_steps = [round(EPOCH_SECONDS / max(examination.step_seconds, STEP_SECONDS)) for examination in examinations]
    return dataclasses.replace(machine, variables=machine.variables | {sharding.STEPS_VARIABLE: str(max(NUM_STEPS, *num_steps, 0))})


def examined(settings: Settings) -> Examination:
    """Returns what experiments on a workload find, whatever the runs show. Raises UserError where the code of a user's file fails."""
    return experiments.in_one_process(_subject(settings))


def _subject(settings: Settings) -> Settings:
    """Returns the settings of a run that say what is trained, so that experiments on it are made once."""
    names = ("workload", "model", "model_args", "data_dir", *workloads.SIZES)
    dataset = settings.dataset or workloads.workload_of(settings).datasets[0]
    return dataclasses.replace(Settings(), dataset=dataset, **{name: getattr(settings, name) for name in names})


def with_references(jobs: Sequence[Job]) -> list[Job]:
    """Adds the runs of one process whose micro-batches are the batches of the ranks, for a model with buffers, such as statistics.

    A backend of several ranks trains with one only where no other size is given: it would exchange nothing.
    """
    sizes = sorted({job.num_ranks for job in jobs} - {1})
    jobs = [job for job in jobs if job.backend == BASELINE or job.num_ranks > 1 or not sizes]
    return [*jobs, *(reference for job in jobs if job.backend == BASELINE for reference in _by_rank(job, sizes))]


def _by_rank(plain: Job, sizes: Iterable[int]) -> Iterator[Job]:
    workload = workloads.workload_of(plain.settings)
    if not workload.model.has_buffers:
        return
    batch_size = plain.settings.batch_size or workload.batch_size
    for num_ranks in sizes:
        # A batch that cannot be divided is refused for the ranks.
        if batch_size % num_ranks == 0:
            of_ranks = {"batch_size": batch_size // num_ranks, "accumulate": plain.settings.accumulate * num_ranks}
            run_id = f"{plain.settings.run_id}-by-{num_ranks}"
            yield plain._replace(settings=dataclasses.replace(plain.settings, **of_ranks, run_id=run_id))


def show(records: Sequence[Record]) -> int:
    """Prints a line for each run and returns the exit status: 1 where one differs."""
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
    # Once, though micro-batches have references too.
    findings = list({record.workload: examined(record.settings) for record in records if is_reference(record)}.items())
    print_tables(filled("verify", rows), [QUESTION, *answer(runs, findings)])
    return 1 if not runs or any(run.problem for run in runs) or any(finding.wrong for _, finding in findings) else 0


def answer(runs: Sequence[Verified], findings: Iterable[tuple[str, Examination]] = ()) -> list[str]:
    """Returns what is wrong whatever the runs show, how many runs differ, and what to do about statistics by rank."""
    lines = [f"Wrong in {workload}: {text}." for workload, finding in findings for text in finding.wrong.values()]
    num_differing, num_by_rank = sum(run.problem is not None for run in runs), sum(run.is_by_rank for run in runs)
    lines.append(f"{num_differing} of {len(runs)} runs differ." if num_differing else f"All {len(runs)} runs agree.")
    if num_by_rank:
        lines.append(
            f"{num_by_rank} of them with the micro-batches of one process: batch norm has the statistics of a rank's batch, "
            "with every backend. On GPUs SyncBatchNorm has those of all ranks."
        )
    without_gradient = [name for _, finding in findings for name in finding.without_gradient]
    if without_gradient:
        lines.append(f"Never trained, since no gradient comes to them: {shortened(', '.join(without_gradient), 200)}.")
    return lines


def is_reference(record: Record) -> bool:
    """Returns whether a run is that of one process."""
    return record.backend == BASELINE and record.status == "ok"


def verified(records: Iterable[Record]) -> list[Verified]:
    """Compares runs with those of one process. Without it there is nothing to compare, and none of them is verified."""
    records = list(records)
    references = {(record.workload, record.settings.accumulate): record for record in records if is_reference(record)}
    return [_compared(record, references) for record in records if not is_reference(record)]


def _compared(record: Record, references: dict[tuple[str, int], Record]) -> Verified:
    """Compares a run with those of one process, by workload and number of micro-batches."""
    bound = BOUND_OF_FLOAT32_MASTERS if declaration_of(record.backend).float32_masters else BOUND
    num_micro_batches = record.settings.accumulate
    reference = references.get((record.workload, num_micro_batches))
    by_rank = references.get((record.workload, num_micro_batches * record.num_ranks)) if record.num_ranks > 1 else None
    differences, differences_by_rank = _differences(record, reference), _differences(record, by_rank)
    first_step = _first_step(differences, bound)
    agrees_by_rank = bool(differences_by_rank) and _first_step(differences_by_rank, bound) is None
    if problem := _problem(record, reference):
        cause = _cause_of_failure(record, reference)
    elif first_step and not agrees_by_rank:
        problem = f"differs from step {first_step} on"
        cause = _cause(record)
    else:
        problem = None if first_step else _difference_of_evaluations(record, reference, max(bound, JUMP * max(differences, default=0.0)))
        cause = _wrong(record, "evaluation", "metric") if problem else None
    largest, largest_by_rank = max(differences, default=None), max(differences_by_rank, default=None)
    return Verified(record.workload, record.backend, record.num_ranks, largest, largest_by_rank, bound, first_step, problem, cause)


def _differences(record: Record, reference: Record | None) -> list[float]:
    """Returns the relative differences of the losses of two runs, step by step."""
    return [_difference(*pair) for pair in zip(record.losses, reference.losses if reference else (), strict=False)]


def _difference(value: float | None, expected: float | None) -> float:
    return float("inf") if value is None or expected is None else abs(value - expected) / max(abs(expected), 1e-300)


def _first_step(differences: list[float], bound: float) -> int | None:
    """Returns the first step, from 1, that differs by more than the bound, or later by far more than all before."""
    for step, difference in enumerate(differences, 1):
        if difference > (bound if step <= NUM_STEPS else max(LATE_BOUND, JUMP * max(differences[: step - 1]))):
            return step
    return None


def _problem(record: Record, reference: Record | None) -> str | None:
    """Returns why a run cannot be compared with that of one process; None if it can."""
    if record.status != "ok":
        return f"not seen: {record.status}, {record.error or ''}"
    if reference is None:
        return f"not seen: {BASELINE} has not completed"
    problems = {
        "it has other data or shapes than one process": record.workload_digest != reference.workload_digest,
        "it begins with other parameters than one process": record.parameter_digests[:1] != reference.parameter_digests[:1],
        f"it took {len(record.losses)} steps, and {BASELINE} took {len(reference.losses)}": len(record.losses) != len(reference.losses),
        f"it trained {(difference := comparison.sample_difference(record, reference))} than {BASELINE}": difference is not None,
    }
    return next((problem for problem, holds in problems.items() if holds), None)


def _difference_of_evaluations(record: Record, reference: Record | None, bound: float) -> str | None:
    """Returns how the evaluations of two runs differ. With statistics of its own each rank evaluates with its own."""
    if reference is None or record.buffers_in_sync is False:
        return None
    for name, values, expected in (
        ("loss", record.eval_losses, reference.eval_losses),
        (record.metric, record.accuracies, reference.accuracies),
    ):
        for epoch, pair in enumerate(zip(values, expected, strict=False), 1):
            if _difference(*pair) > bound:
                return f"the evaluation after epoch {epoch} differs ({name} {pair[0]:g}, and {pair[1]:g} in one process)"
    return None


def _cause(record: Record) -> str | None:
    """Returns why a run that has completed trains otherwise; None where nothing is found."""
    if between_processes := _asked(experiments.between_processes, _subject(record.settings), record.num_ranks):
        return between_processes
    if not (examination := _asked(examined, record.settings)):
        return None
    of_ranks = [examination.wrong.get("training"), *examination.of_ranks] if record.num_ranks > 1 else []
    return "; ".join(filter(None, [*of_ranks, examination.of_shards])) or None


def _asked(function: Callable[..., Answer], *arguments: Any) -> Answer | None:
    """Returns the answer of experiments; None where they cannot be made."""
    try:
        return function(*arguments)
    except UserError:
        return None


def _wrong(record: Record, *subjects: str) -> str | None:
    """Returns what is wrong in one of these, whatever the runs show."""
    examination = _asked(examined, record.settings)
    return next((text for subject, text in examination.wrong.items() if subject in subjects), None) if examination else None


def _cause_of_failure(record: Record, reference: Record | None) -> str | None:
    """Returns why a run has failed or cannot be compared; None where nothing is found."""
    error = record.error or ""
    if (record.status == "ok" and reference) or any(part in error for part in OF_PROCESSES):
        return _asked(experiments.between_processes, _subject(record.settings), record.num_ranks)
    # Gloo says why it ends a process, and the record has that it was killed.
    printed = "\n".join([error, *(record.output_tail or ())])
    return next((cause for part, cause in FAILURES.items() if part in printed), None)
