"""All measurements as CSV: the flat table, one line per run, without averaging."""

import dataclasses
import json
import re
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import polars
import polars.selectors
from polars import DataFrame, DataType, Expr, Series

from common.record.definition import Record
from launch.report.report import Report
from launch.report.table import DERIVED, fields, known_type, value_of

# A formula of a spreadsheet begins with one of these.
FORMULA = r"^[=+\-@\t\n]"
TYPES = {bool: polars.Boolean(), int: polars.Int64(), float: polars.Float64(), str: polars.String(), Path: polars.String()}
# Columns of times, speeds and energies of training, which a run that diverged has not, since it trained nothing.
OF_SPEED = re.compile("(?!machine_noise_).*(_seconds|_second|_second_per_rank|_joules|share_of_peak)(_by_rank)?")


def text(report: Report) -> str:
    """Returns the table of the runs of the report, by comparison, backend, size and repeat; unknown values are empty."""
    return written(frame(report.runs.compared))


def frame(records: Iterable[Record]) -> DataFrame:
    """Returns the table of records in their order, with all columns whatever the records have: null is what is not known.

    Values per step, epoch or rank are lists. What is nested further is JSON.
    """
    records = list(records)
    declared_types = {name: known_type(typing.get_type_hints(function)["return"]) for name, function in DERIVED.items()}
    declared_types |= {field.column: field.declared for field in fields().values()}
    columns = [_series(name, _dtype(declared), records) for name, declared in declared_types.items()]
    trained = polars.when(polars.col("status") != "diverged")
    return DataFrame(columns).with_columns(
        trained.then(polars.col(name)).alias(name) for name in declared_types if OF_SPEED.fullmatch(name)
    )


def _series(column: str, dtype: DataType | None, records: Iterable[Record]) -> Series:
    """Returns the values of a column; without a type they are JSON."""
    values = (value_of(record, column) for record in records)
    texts = [_text(value) if dtype is None or isinstance(value, Path) else value for value in values]
    return Series(column, texts, dtype or polars.String(), strict=False)


def _text(value: Any) -> str | None:
    return None if value is None else str(value) if isinstance(value, Path) else json.dumps(value, default=dataclasses.asdict)


def _dtype(declared: Any) -> DataType | None:
    """Returns the type of the column of a value, or of a list of values; None for any other."""
    if typing.get_origin(declared) is Literal:
        return TYPES[type(typing.get_args(declared)[0])]
    if typing.get_origin(declared) is list:
        inner = _dtype(known_type(typing.get_args(declared)[0]))
        return polars.List(inner) if inner and not isinstance(inner, polars.List) else None
    return TYPES.get(declared)


def written(runs: DataFrame) -> str:
    """Returns a table as CSV; the values of a list are in one cell, separated by spaces, with a dash for one that is not known.

    A text that a spreadsheet would take for a formula begins with a quote (OWASP, CSV injection).
    """
    texts = [name for name, kind in runs.schema.items() if kind in (polars.String, polars.List(polars.String))]
    element = polars.element().cast(polars.String).fill_null("-")
    flat = runs.with_columns(polars.selectors.list().list.eval(element).list.join(" "))
    return flat.with_columns(_harmless(polars.col(name)).alias(name) for name in texts).write_csv()


def _harmless(texts: Expr) -> Expr:
    """Returns texts that are no formulas, with no carriage return, which ends a line for some readers."""
    plain = texts.str.replace_all("\r", "\n", literal=True)
    return polars.when(plain.str.contains(FORMULA)).then("'" + plain).otherwise(plain)
