"""The flat table of runs, which the CSV holds: a row a run, a column for every value of its record and for what follows from it."""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from common import metric
from common.cost import volumes
from common.record.definition import Record
from launch.report.statistics import complete, mean, present

# What no column has: summaries of traces, whose runs are not compared and which have pages of their own, and settings that are in columns
# of the record.
LEFT_OUT = {
    "timeline", "mpi_profile", "library_configuration", "settings_machine", "settings_repeat", "settings_run_id", "settings_scaling",
    "settings_seed", "settings_workload",
}  # fmt: skip


class Field(NamedTuple):
    """A column of a record's own values: the attributes that lead to it from the record, and its declared type without None."""

    column: str
    path: tuple[str, ...]
    declared: Any


def value_of(record: Record, column: str) -> Any:
    """Returns the value of a run in a column; None where it is not known, or does not apply."""
    if derive := DERIVED.get(column):
        return derive(record)
    value: Any = record
    for name in fields()[column].path:
        value = getattr(value, name)
        if value is None:
            return None
    return value


@cache
def fields() -> dict[str, Field]:
    """Returns the columns of a record's own values, in the order of its definition: PART_KEY for its parts, settings_NAME for settings."""
    return {field.column: field for field in _fields(Record, ())}


def _fields(kind: Any, path: tuple[str, ...]) -> Iterator[Field]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        here = (*path, field.name)
        column = "_".join(here)
        if column in LEFT_OUT:
            continue
        declared = known_type(hints[field.name])
        if isinstance(declared, type) and dataclasses.is_dataclass(declared):
            yield from _fields(declared, here)
        else:
            yield Field(column, here, declared)


def known_type(declared: Any) -> Any:
    """Returns the type of a value that is known: `int` of `int | None`."""
    if typing.get_origin(declared) not in (typing.Union, types.UnionType):
        return declared
    return next(kind for kind in typing.get_args(declared) if kind is not types.NoneType)


def run_id(record: Record) -> str | None:
    """Returns the name of a run."""
    return record.settings.run_id


def machine(record: Record) -> str:
    """Returns the name of the machine of a run."""
    return record.settings.machine or "unknown"


def matrix(record: Record) -> str:
    """Returns the matrix that a run is of. Runs of one matrix and repeat ran close together in time and form pairs."""
    return (record.settings.run_id or "").partition(f"-{record.workload}-{record.backend}-n")[0]


def valid_time_seconds(record: Record) -> float | None:
    """Returns the time to solution; None where a run missed the target, failed, or was resumed from a checkpoint."""
    return record.time_to_solution_seconds if record.status == "ok" else None


def valid_time_with_startup_seconds(record: Record) -> float | None:
    """Returns the seconds from the start of the launcher to the target; None also where they are not known, as outside a matrix."""
    stages = complete((record.launch_seconds, record.import_seconds, record.init_seconds))
    time = valid_time_seconds(record)
    return None if time is None or not stages else time + sum(stages)


def epochs_to_target(record: Record) -> int | None:
    """Returns the number of epochs after which a run first met its target; None if it did not, or was resumed from a checkpoint."""
    if record.status != "ok" or record.target is None or record.resumed_after_epochs:
        return None
    target = record.target
    reached = (value is not None and metric.meets(value, target, record.lower_is_better) for value in record.accuracies)
    return next((number for number, is_reached in enumerate(reached, 1) if is_reached), None)


def epoch_seconds(record: Record, num_epochs: int | None = None) -> float | None:
    """Returns the mean seconds of an epoch, training and evaluation; None unless all epochs are known, of a run that completed them.

    With `num_epochs` only the first epochs count.
    """
    trained, evaluated = epoch_training_seconds(record, num_epochs), complete(record.eval_seconds[:num_epochs])
    if trained is None or evaluated is None:
        return None
    return trained + sum(evaluated) / len(record.train_seconds[:num_epochs])


def epoch_training_seconds(record: Record, num_epochs: int | None = None) -> float | None:
    """Returns the mean seconds of the training of an epoch, without its evaluation, as `epoch_seconds` does."""
    trained = complete(record.train_seconds[:num_epochs])
    return sum(trained) / len(trained) if trained and record.status == "ok" and not record.resumed_after_epochs else None


def evaluation_share(record: Record) -> float | None:
    """Returns the share of evaluation in the seconds of an epoch."""
    whole, trained = epoch_seconds(record), epoch_training_seconds(record)
    return 1 - trained / whole if whole and trained is not None else None


def training_seconds(record: Record) -> float | None:
    """Returns the seconds of the training of all epochs."""
    return _total(record.train_seconds)


def evaluation_seconds(record: Record) -> float | None:
    """Returns the seconds of the evaluations of all epochs."""
    return _total(record.eval_seconds)


def _total(values: list[float | None]) -> float | None:
    seconds = present(values)
    return sum(seconds) if seconds else None


def mean_step_seconds(record: Record) -> float | None:
    """Returns the mean seconds of a step of the timed training."""
    trained = training_seconds(record)
    return trained / len(record.step_seconds) if trained is not None and record.step_seconds else None


def timed_step_seconds(record: Record) -> float | None:
    """Returns the mean seconds of a step of the timed training, in its median epoch."""
    trained = present(record.train_seconds)
    if not trained or not record.step_seconds:
        return None
    return float(np.median(trained)) * len(record.train_seconds) / len(record.step_seconds)


def median_step_seconds(record: Record) -> float | None:
    """Returns the seconds of the median step of the timed training."""
    steps = present(record.step_seconds)
    return float(np.median(steps)) if steps else None


def _breakdown_mean(key: str) -> Callable[[Record], float | None]:
    """Returns the function of a column that has the mean over the ranks of a value of the step breakdown."""

    def mean_over_ranks(record: Record) -> float | None:
        return mean(getattr(record.step_breakdown, key)) if record.step_breakdown else None

    return mean_over_ranks


def breakdown_sent_bytes(record: Record) -> float | None:
    """Returns the bytes of all collectives of a step of the breakdown."""
    return sum(operation.num_bytes for operation in record.step_breakdown.operations.values()) if record.step_breakdown else None


def step_data_wait_seconds(record: Record) -> float | None:
    """Returns the mean seconds over the ranks that a step waits for data: in training where it is read from disk, else in the breakdown."""
    if record.reading is None:
        return value_of(record, "breakdown_data_wait_seconds")
    return float(np.mean(record.reading.wait_seconds_by_rank)) / max(1, record.reading.num_steps)


def read_bytes_per_second(record: Record) -> float | None:
    """Returns the bytes of samples that all ranks read in a second of training."""
    seconds = training_seconds(record)
    return sum(record.reading.sample_bytes_by_rank) / seconds if record.reading and seconds else None


# The functions of the columns that are not in the record itself.
DERIVED: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        run_id, machine, matrix, valid_time_seconds, valid_time_with_startup_seconds, epochs_to_target, epoch_seconds,
        epoch_training_seconds, evaluation_share, training_seconds, evaluation_seconds, mean_step_seconds, timed_step_seconds,
        median_step_seconds, breakdown_sent_bytes, step_data_wait_seconds, read_bytes_per_second, volumes.state_bytes,
        volumes.expected_state_bytes,
    )
} | {
    "sent_per_step_bytes": volumes.sent_bytes,
    "expected_sent_per_step_bytes": volumes.expected_sent_bytes,
} | {
    f"breakdown_{key}": _breakdown_mean(key)
    for key in ("step_seconds", "data_wait_seconds", "compute_seconds", "communication_seconds", "communication_exposed_seconds")
}  # fmt: skip
