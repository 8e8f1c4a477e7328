"""The flat table: a row a run, in which every value of its record has a column; and its CSV."""

import csv
import io
import json

import pytest

from launch.report import table
from launch.report.table import LEFT_OUT
from tests.launch.report.test_any_record import rich
from tests.support.made_records import ended, made, not_reached, step_breakdown, tensor_bytes, typed


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
    (run,) = typed([record])
    row, (texts,) = {column: table.value_of(run, column) for column in (*table.DERIVED, *table.paths())}, csv_rows([run])
    assert row.keys() == texts.keys()
    for column, value in leaves(record):
        if column in LEFT_OUT:
            assert column not in row
        elif value is None and column not in row:
            part = [row[name] for name in row if name.startswith(f"{column}_")]
            assert part == [None] * len(part) != [], column
        elif isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict | list) for item in value)):
            assert json.loads(texts[column]).keys() >= value.keys() if isinstance(value, dict) else json.loads(texts[column]) == value
        elif isinstance(value, list | int | float):
            assert row[column] == value, column
        else:
            assert texts[column] == (value or ""), column


def csv_rows(records):
    return list(csv.DictReader(io.StringIO(table.csv_text(records))))


def test_csv_has_a_line_for_each_run_with_all_its_samples_and_leaves_cells_empty_without():
    measured = {
        "resumed_after_epochs": 0, "energy_joules": 5.0, "losses": [1.0, None, 2.0],
        "step_breakdown": step_breakdown(), "tensor_bytes_by_rank": tensor_bytes((3, 2, 1), (3, 3, 1)),
    }  # fmt: skip
    with_all, without = csv_rows(typed([made(num_ranks=2, **measured), made(num_ranks=2, repeat=1)]))
    expected = {
        "samples_dropped_per_epoch": ("1", "1"), "resumed_after_epochs": ("0", ""),
        "energy_joules": ("5.0", ""), "losses": ("1.0 - 2.0", "3.0 2.0 1.0 0.5"), "exact": ("true", "true"),
        "step_breakdown_compute_seconds": ("0.006 0.006", ""), "step_breakdown_bus_bytes_per_second": ("500000000.0", ""),
        "state_bytes": ("7", ""), "sent_per_step_bytes": ("5000000.0", ""), "expected_state_bytes": ("14398584.0",) * 2,
        "expected_sent_per_step_bytes": ("4799528.0",) * 2,
    }  # fmt: skip
    assert {name: (with_all[name], without[name]) for name in expected} == expected


def test_csv_has_no_cell_that_a_spreadsheet_would_calculate():
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "1=1"]
    rows = csv_rows(typed([made(repeat=repeat) | {"error": text, "losses": [-1.0, 2.0]} for repeat, text in enumerate(texts)]))
    assert [row["error"] for row in rows] == ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t=1", "'\n=1", "1=1"]
    # Numbers stay as they are, also negative ones.
    assert {row["losses"] for row in rows} == {"-1.0 2.0"}


def test_a_run_that_diverged_has_no_speed_of_training():
    rows = csv_rows(typed([made(), made(repeat=1) | {"status": "diverged", "error": "a loss is not finite"}]))
    assert [(row["train_seconds"] == "", row["samples_per_second"] == "") for row in rows] == [(False, False), (True, True)]


@pytest.mark.parametrize(
    ("record", "number"),
    [
        (made(), 2),
        (made(accuracies=[0.5, 0.7, 0.99, 0.99]), 3),
        (made(accuracies=[None, 0.99]), 2),
        (not_reached(accuracies=[0.5, 0.9]), None),
        (made(resumed_after_epochs=1, time_to_solution_seconds=None), None),
        (ended("failed"), None),
        (made(workload="resnet50"), None),
    ],
)
def test_epochs_to_the_target(record, number):
    assert table.epochs_to_target(*typed([record])) == number


@pytest.mark.parametrize(
    ("record", "seconds"),
    [
        (made(train_seconds=[3.0, 5.0], eval_seconds=[1.0, 1.0]), 5.0),
        # Without a target nothing is evaluated.
        (made(train_seconds=[3.0, 5.0], eval_seconds=[]), 4.0),
        (made(train_seconds=[3.0, None]), None),
        (ended("timeout"), None),
    ],
)
def test_seconds_per_epoch(record, seconds):
    assert table.epoch_seconds(*typed([record])) == seconds


def test_a_step_of_the_timed_training_is_one_of_the_median_epoch():
    (run,) = typed([made(train_seconds=[9.0, 1.0, 2.0], eval_seconds=[1.0] * 3, step_seconds=[4.0, 5.0, 0.5, 0.5, 1.0, 1.0])])
    assert table.timed_step_seconds(run) == 1.0
