"""A history: each entry against itself in the matrix before, by date, with what changed between them."""

import pytest

from launch.report import several
from launch.report.export import pictures, svg
from launch.report.statistics import geometric_mean
from launch.report.tables import OVERSUBSCRIBED
from tests.support.made_records import ended, made, on, repeats, typed

RUNS = (10.0, 10.2, 9.8, 10.1, 9.9, 10.0)


def matrix(day, factor=1.0, runs=RUNS, torch="2.13.0", **changes):
    """A matrix of one entry. Its name is in no order of time."""
    changes = {"stamp": f"{29 - day}", "started_at": f"2026-01-{day:02d}T00:00:00Z"} | changes
    return on("here", repeats([seconds * factor for seconds in runs], **changes), packages={"torch": torch})


def answer(*matrices):
    return several.of_dates(typed([record for records in matrices for record in records]))


def column(name, *matrices):
    (table,) = answer(*matrices).sections[0].tables
    return [row[[column.name for column in table.columns].index(name)] for row in table.rows]


UPGRADED = (matrix(1), matrix(2, 1.2, torch="2.14.0"), matrix(3, 1.2, torch="2.14.0"))


def test_entries_are_compared_with_the_matrix_before_in_the_order_of_dates():
    assert column("matrix begun", *reversed(UPGRADED)) == [f"2026-01-0{day}T00:00:00Z" for day in (1, 2, 3)]
    assert column("verdict", *reversed(UPGRADED)) == [None, "worse", "no difference shown"]
    assert column("changed", *UPGRADED) == [None, "torch 2.13.0 to 2.14.0", "nothing"]
    assert [ratio and round(ratio, 2) for ratio in column("after / before", *UPGRADED)] == [None, 1.22, 1.0]


def test_a_sentence_has_what_changed_with_the_versions_and_the_change_of_all_together():
    of_another_backend = [matrix(day, backend="horovod_tf", torch=torch) for day, torch in ((1, "2.13.0"), (2, "2.14.0"))]
    history = answer(*UPGRADED[:2], *of_another_backend)
    assert history.sections[0].sentences == [
        "cnn, weak scaling, from the matrix begun at 2026-01-01T00:00:00Z to that at 2026-01-02T00:00:00Z: worse: ddp at 1 rank (+22.2 %); "
        "no difference shown: 1 of 2; all together: +10.6 %. Changed: torch 2.13.0 to 2.14.0."
    ]
    assert history.headline == ["Seconds per epoch against the matrix before, 2 compared: 1 worse, 1 no difference shown."]
    assert "Changed: no version and no commit." in answer(matrix(1), matrix(2)).sections[0].sentences[0]


def test_the_time_of_a_matrix_is_the_geometric_mean_with_its_interval():
    ((seconds,), (low,), (high,)) = (column(name, matrix(1)) for name in ("seconds per epoch", "95 % from", "to"))
    assert seconds == pytest.approx(geometric_mean([(run - 1) / 2 for run in RUNS]))
    # Student's t with 5 degrees of freedom, 2.571, of a standard deviation of 1.57 % over the root of 6 runs.
    assert (low, high) == (pytest.approx(seconds / 1.0166, rel=1e-3), pytest.approx(seconds * 1.0166, rel=1e-3))


def test_single_runs_have_no_interval_and_no_verdict():
    single = [matrix(1, runs=RUNS[:1]), matrix(2, 1.5, runs=RUNS[:1])]
    assert column("95 % from", *single) == [None, None]
    assert column("verdict", *single) == [None, "not judged: too few runs"]


def test_a_lost_time_is_worse_and_the_next_is_compared_with_the_last_time():
    lost = [ended("failed", stamp="27", started_at="2026-01-02T00:00:00Z")]
    matrices = matrix(1), lost, matrix(3)
    assert column("verdict", *matrices) == [None, "worse", "no difference shown"]
    assert "ddp at 1 rank (no time)" in answer(*matrices).sections[0].sentences[0]
    assert answer(*matrices).sections[1].sentences == ["Of 13 files: 1 failed."]


def test_one_matrix_says_that_a_change_takes_two():
    assert answer(matrix(1)).headline == ["No entry is in two matrices; a change takes two."]
    assert pictures.of(answer(matrix(1)))["history"] == []


def test_traced_runs_are_left_out_and_counted():
    history = answer(matrix(1), [made(settings={"timeline": True})])
    assert len(history.runs) == len(RUNS)
    assert history.notes[0].startswith("1 of the runs were traced")


def test_a_line_by_date_has_every_interval_and_oversubscribed_entries_have_their_own():
    shared = [matrix(day, num_ranks=8, oversubscribed=True) for day in (1, 2)]
    history = answer(*UPGRADED, *shared)
    drawn = pictures.of(history)["history"]
    assert [(chart.subject, chart.oversubscribed) for chart in drawn] == [
        ("cnn, weak scaling, 1 rank", False), (f"cnn, weak scaling, 8 ranks, {OVERSUBSCRIBED}", True)
    ]  # fmt: skip
    rows = drawn[0].spec["data"]["values"]
    assert [row["began"] for row in rows] == [f"2026-01-0{day} 00:00" for day in (1, 2, 3)]
    assert all(row["low"] < row["seconds"] < row["high"] for row in rows)
    assert "2026-01-02 00:00" in svg.text(history)
