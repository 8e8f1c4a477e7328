"""The flat table of the report: a row a run, with a column for every value of its record. The CSV is this table written."""

import dataclasses
import json
import re
import types
import typing
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

import polars
from polars import DataFrame, DataType, Series

from common.cost import volumes
from common.record.definition import Record
from launch.report import entries, environments

# What no column has: summaries of traces, whose runs are not compared and which have pages of their own, and settings that are in columns
# of the record.
LEFT_OUT = {
    "timeline", "mpi_profile", "library_configuration", "settings_machine", "settings_repeat", "settings_run_id", "settings_scaling",
    "settings_seed", "settings_workload",
}  # fmt: skip
# What is not in the record itself, by its column.
FURTHER = {
    "run_id": (lambda record: record.settings.run_id, polars.String()),
    "machine": (environments.machine_of, polars.String()),
    "matrix": (lambda record: entries.key_of(record).matrix, polars.String()),
    "state_bytes": (volumes.state_bytes, polars.Int64()),
    "expected_state_bytes": (volumes.expected_state_bytes, polars.Float64()),
    "sent_per_step_bytes": (volumes.sent_bytes, polars.Float64()),
    "expected_sent_per_step_bytes": (volumes.expected_sent_bytes, polars.Float64()),
}
TYPES = {bool: polars.Boolean(), int: polars.Int64(), float: polars.Float64(), str: polars.String(), Path: polars.String()}
# Columns of times, speeds and energies of training, which a run that diverged has not, since it trained nothing.
OF_SPEED = re.compile("(?!machine_noise_).*(_seconds|_second|_second_per_rank|_joules|share_of_peak)(_by_rank)?")


class Field(typing.NamedTuple):
    """A column, the attributes that lead to its value from the record, and its type; None where it holds JSON."""

    column: str
    path: tuple[str, ...]
    dtype: DataType | None


def table(records: Iterable[Record]) -> DataFrame:
    """Returns the table of records in their order, with all columns whatever the records have: null is what is not known.

    Parts of a record have columns PART_KEY, and the settings settings_NAME. Values per step, epoch or rank are lists. What is nested
    further is JSON.
    """
    records = list(records)
    columns = [Series(name, list(map(value_of, records)), dtype, strict=False) for name, (value_of, dtype) in FURTHER.items()]
    columns += [
        Series(field.column, [_value(record, field) for record in records], field.dtype or polars.String(), strict=False)
        for field in fields()
    ]
    trained = polars.when(polars.col("status") != "diverged")
    return DataFrame(columns).with_columns(
        trained.then(polars.col(column.name)).alias(column.name) for column in columns if OF_SPEED.fullmatch(column.name)
    )


@cache
def fields() -> list[Field]:
    """Returns the columns of a record's own values, in the order of its definition."""
    return list(_fields(Record, ()))


def _fields(kind: Any, path: tuple[str, ...]) -> Iterator[Field]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        here = (*path, field.name)
        column = "_".join(here)
        if column in LEFT_OUT:
            continue
        declared = _known(hints[field.name])
        if isinstance(declared, type) and dataclasses.is_dataclass(declared):
            yield from _fields(declared, here)
        else:
            yield Field(column, here, _dtype(declared))


def _known(declared: Any) -> Any:
    """Returns the type of a value that is known: `int` of `int | None`."""
    if typing.get_origin(declared) not in (typing.Union, types.UnionType):
        return declared
    return next(kind for kind in typing.get_args(declared) if kind is not types.NoneType)


def _dtype(declared: Any) -> DataType | None:
    """Returns the type of the column of a value, or of a list of values; None for any other."""
    if typing.get_origin(declared) is Literal:
        return TYPES[type(typing.get_args(declared)[0])]
    if typing.get_origin(declared) is list:
        inner = _dtype(_known(typing.get_args(declared)[0]))
        return polars.List(inner) if inner and not isinstance(inner, polars.List) else None
    return TYPES.get(declared)


def _value(record: Record, field: Field) -> Any:
    value: Any = record
    for name in field.path:
        value = getattr(value, name)
        if value is None:
            return None
    if field.dtype is None:
        return json.dumps(value, default=dataclasses.asdict)
    return str(value) if isinstance(value, Path) else value
