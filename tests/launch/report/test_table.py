"""The flat table: a row a run, in which every value of its record has a column."""

import json

import polars
import pytest

from launch.report import table
from launch.report.export.csv import frame
from launch.report.table import LEFT_OUT
from tests.launch.report.test_any_record import rich
from tests.support.made_records import ended, made, not_reached, typed


def leaves(part, name=""):
    """The scalars and lists of a JSON value, by their columns; an object without a key that is a column of its own is one itself."""
    for key, value in part.items():
        column = f"{name}_{key}".strip("_")
        if isinstance(value, dict) and column not in OBJECTS | LEFT_OUT:
            yield from leaves(value, column)
        else:
            yield column, value


# Objects whose keys are names, or what one library tells.
OBJECTS = {
    "step_breakdown_operations", "step_breakdown_library",
    "environment_packages", "environment_variables", "environment_ignored_variables",
}  # fmt: skip


@pytest.mark.parametrize("record", [rich(), made(global_batch=32, exact=False), made(settings={"threads": 2})])
def test_every_value_of_a_record_has_a_column(record):
    (row,) = frame(typed([record])).to_dicts()
    for column, value in leaves(record):
        if column in LEFT_OUT:
            assert column not in row
        elif value is None and column not in row:
            part = [row[name] for name in row if name.startswith(f"{column}_")]
            assert part == [None] * len(part) != [], column
        elif isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict | list) for item in value)):
            assert json.loads(row[column]).keys() >= value.keys() if isinstance(value, dict) else json.loads(row[column]) == value
        else:
            assert row[column] == value, column


def test_the_columns_and_their_types_are_the_same_whatever_the_records_have():
    few, many = frame(typed([made()])), frame(typed([rich()]))
    assert few.schema == many.schema == frame([]).schema
    assert [few.schema[name] for name in ("staleness", "global_batch", "exact", "launcher", "losses")] == [
        polars.String, polars.Int64, polars.Boolean, polars.String, polars.List(polars.Float64),
    ]  # fmt: skip


def test_a_run_that_diverged_has_no_speed_of_training():
    runs = typed([made(), made(repeat=1) | {"status": "diverged", "error": "a loss is not finite"}])
    assert frame(runs)["train_seconds"].is_null().to_list() == frame(runs)["samples_per_second"].is_null().to_list() == [False, True]


@pytest.mark.parametrize(
    ("record", "number"),
    [
        (made(), 2),
        (made(accuracies=[0.5, 0.7, 0.99, 0.99]), 3),
        (made(accuracies=[None, 0.99]), 2),
        (not_reached(accuracies=[0.5, 0.9]), None),
        (made(resumed_after_epochs=1, time_to_solution_seconds=None), None),
        (ended("failed"), None),
        (made(workload="transformer-alcf"), None),
    ],
)
def test_epochs_to_the_target(record, number):
    assert table.epochs_to_target(*typed([record])) == number


@pytest.mark.parametrize(
    ("record", "seconds", "training_seconds", "evaluation_share"),
    [
        (made(train_seconds=[3.0, 5.0], eval_seconds=[1.0, 1.0]), 5.0, 4.0, pytest.approx(0.2)),
        # Without a target nothing is evaluated.
        (made(train_seconds=[3.0, 5.0], eval_seconds=[]), 4.0, 4.0, 0.0),
        (made(train_seconds=[3.0, None]), None, None, None),
        (ended("timeout"), None, None, None),
    ],
)
def test_seconds_per_epoch(record, seconds, training_seconds, evaluation_share):
    (run,) = typed([record])
    columns = ("epoch_seconds", "epoch_training_seconds", "evaluation_share")
    assert [table.value_of(run, column) for column in columns] == [seconds, training_seconds, evaluation_share]


def test_a_step_of_the_timed_training_is_one_of_the_median_epoch_and_the_mean_and_median_step_are_of_all():
    (run,) = typed([made(train_seconds=[9.0, 1.0, 2.0], eval_seconds=[1.0] * 3, step_seconds=[4.0, 5.0, 0.5, 0.5, 1.0, 1.0])])
    columns = ("timed_step_seconds", "mean_step_seconds", "median_step_seconds")
    assert [table.value_of(run, column) for column in columns] == [1.0, 2.0, 1.0]
