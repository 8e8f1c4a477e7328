"""The flat table of runs: a row a run, a column for every value of its record and for what follows from it. --csv writes it."""

import csv
import dataclasses
import io
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

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
# Columns of times, speeds and energies of training, which a run that diverged has not, since it trained nothing.
OF_SPEED = re.compile("(?!machine_noise_).*(_seconds|_second|_second_per_rank|_joules|share_of_peak)(_by_rank)?")
# A formula of a spreadsheet begins with one of these.
FORMULA = tuple("=+-@\t\n")


def csv_text(records: Iterable[Record]) -> str:
    """Returns the table of records in their order as CSV, with all columns whatever the records have; unknown values are empty.

    Values per step, epoch or rank are in one cell, separated by spaces, with a dash for one that is not known. What is nested further is
    JSON.
    """
    columns, file = [*DERIVED, *paths()], io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for record in records:
        is_untrained = record.status == "diverged"
        values = (None if is_untrained and OF_SPEED.fullmatch(column) else value_of(record, column) for column in columns)
        writer.writerow(map(_cell, values))
    return file.getvalue()


def _cell(value: Any) -> str:
    """Returns a value as text; one that a spreadsheet would take for a formula begins with a quote (OWASP, CSV injection)."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case str() | Path():
            # A carriage return ends a line for some readers.
            text = str(value).replace("\r", "\n")
            return f"'{text}" if text.startswith(FORMULA) else text
        case list() if not any(isinstance(item, list | dict) or dataclasses.is_dataclass(item) for item in value):
            return " ".join("-" if item is None else _cell(item) for item in value)
        case _:
            return json.dumps(value, default=dataclasses.asdict)


def value_of(record: Record, column: str) -> Any:
    """Returns the value of a run in a column; None where it is not known, or does not apply."""
    if derive := DERIVED.get(column):
        return derive(record)
    value: Any = record
    for name in paths()[column]:
        value = getattr(value, name)
        if value is None:
            return None
    return value


@cache
def paths() -> dict[str, tuple[str, ...]]:
    """Returns the attributes that lead to each of a record's own values, by column: PART_KEY for its parts, settings_NAME for settings."""
    return {"_".join(path): path for path in _paths(Record, ())}


def _paths(kind: Any, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        path = (*above, field.name)
        if "_".join(path) in LEFT_OUT:
            continue
        declared = _known_type(hints[field.name])
        if isinstance(declared, type) and dataclasses.is_dataclass(declared):
            yield from _paths(declared, path)
        else:
            yield path


def _known_type(declared: Any) -> Any:
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
    trained, evaluated = complete(record.train_seconds[:num_epochs]), complete(record.eval_seconds[:num_epochs])
    if not trained or evaluated is None or record.status != "ok" or record.resumed_after_epochs:
        return None
    return sum(trained) / len(trained) + sum(evaluated) / len(trained)


def timed_step_seconds(record: Record) -> float | None:
    """Returns the mean seconds of a step of the timed training, in its median epoch."""
    trained = present(record.train_seconds)
    if not trained or not record.step_seconds:
        return None
    return float(np.median(trained)) * len(record.train_seconds) / len(record.step_seconds)


def _breakdown_mean(key: str) -> Callable[[Record], float | None]:
    """Returns the function of a column that has the mean over the ranks of a value of the step breakdown."""

    def mean_over_ranks(record: Record) -> float | None:
        return mean(getattr(record.step_breakdown, key)) if record.step_breakdown else None

    return mean_over_ranks


def breakdown_sent_bytes(record: Record) -> float | None:
    """Returns the bytes of all collectives of a step of the breakdown."""
    return sum(operation.num_bytes for operation in record.step_breakdown.operations.values()) if record.step_breakdown else None


# The functions of the columns that are not in the record itself.
DERIVED: dict[str, Callable[[Record], Any]] = {
    function.__name__: function
    for function in (
        run_id, machine, matrix, valid_time_seconds, valid_time_with_startup_seconds, epochs_to_target, epoch_seconds, timed_step_seconds,
        breakdown_sent_bytes, volumes.state_bytes, volumes.expected_state_bytes,
    )
} | {
    "sent_per_step_bytes": volumes.sent_bytes,
    "expected_sent_per_step_bytes": volumes.expected_sent_bytes,
} | {
    f"breakdown_{key}": _breakdown_mean(key)
    for key in ("step_seconds", "data_wait_seconds", "compute_seconds", "communication_seconds", "communication_exposed_seconds")
}  # fmt: skip
