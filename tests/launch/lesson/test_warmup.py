"""The lesson of warm-up: its two runs differ in the warm-up alone, and what is said of them is what their numbers show."""

import dataclasses
from pathlib import Path

import pytest

from common import workloads
from common.record import records
from launch.lesson.warmup import Warmup, by_epoch, conclusion, plot, tables, warmup_jobs
from tests.support.made_records import made, valid
from tests.support.running import BIN, completed, left_over, records_in


def jobs(**changes):
    return warmup_jobs(Warmup(**changes), Path("there"), "here", "stamp-lesson")


def record(*accuracies, status="ok", ranks=8, warmup_epochs=3.0):
    """The record of a run with these accuracies; its learning rates rise by one in each of two steps."""
    return records.from_json(
        made(num_ranks=ranks, settings={"warmup_epochs": warmup_epochs})
        | {
            "status": status,
            "accuracies": list(accuracies),
            "eval_losses": [1 - accuracy for accuracy in accuracies],
            "learning_rates": [float(step) for step in range(2 * len(accuracies))],
            "train_seconds": [1.0] * len(accuracies),
        }
    )


@pytest.mark.parametrize("ranks", [2, 8])
def test_the_two_runs_differ_in_the_warm_up_alone(ranks):
    without, warmed = jobs(ranks=ranks, seed=5, batch_size=16, epochs=4)
    assert (without.settings.warmup_epochs, warmed.settings.warmup_epochs) == (0, 3)
    assert without.settings.run_id == f"stamp-lesson-warmup-without-cnn-ddp-n{ranks}-r0"
    assert warmed.settings.run_id == f"stamp-lesson-warmup-with-cnn-ddp-n{ranks}-r0"
    expected = dataclasses.replace(without.settings, warmup_epochs=3.0, run_id=warmed.settings.run_id)
    assert without._replace(settings=expected) == warmed
    settings = workloads.resolve(warmed.settings, ranks)
    assert (settings.workload, settings.optimizer, settings.learning_rate, settings.learning_rate_factor) == ("cnn", "adam", 0.01, ranks)
    assert (settings.epochs, settings.stop_at_target, settings.scaling) == (4, False, "weak")
    assert (settings.seed, settings.batch_size, settings.results, settings.machine) == (5, 16, Path("there"), "here")


def test_rows_hold_both_runs_side_by_side():
    (table,) = tables(record(0.1), record(0.5, 0.75))
    assert table.texts == [
        ["1", "1.0000", "1.0000", "0.1000", "0.5000", "0.9000", "0.5000"],
        # A run that failed ends early.
        ["2", "-", "3.0000", "-", "0.7500", "-", "0.2500"],
    ]
    assert tables(record(), record()) == []
    cut_short = record(0.1, 0.2)
    cut_short.learning_rates, cut_short.train_seconds = cut_short.learning_rates[:2], [1.0]
    assert by_epoch(cut_short) == ([1.0], [0.1, 0.2], [0.9, 0.8])


SENTENCES = [
    (
        record(0.1, 0.11, 0.1, 0.11), record(0.8, 0.9, 0.95, 0.96),
        "without warm-up 0.11 after 4 epochs, with 3 epochs of warm-up 0.96: without it the run stays near chance, "
        "with it the run trains, at 8 ranks and with one seed",
    ),
    (record(0.1, 0.1, 0.1, 0.1), record(0.5, 0.5, 0.5, 0.5), "without it the run stays near chance, with it the run ends above chance, at"),
    (record(0.1, 0.7, 0.1, 0.1), record(0.9, 0.9, 0.9, 0.9), "without it the run falls back to near chance, with it the run trains, at"),
    (record(0.1, 0.1, 0.1, 0.19), record(0.2, 0.2, 0.2, 0.21), ": no clear difference, at"),
    (record(0.1, 0.1, 0.1, 0.1), record(0.1, 0.1, 0.1, 0.19), ": both stay near chance, at"),
    (record(0.5, 0.1, 0.1, 0.1), record(0.6, 0.1, 0.1, 0.1), ": both fall back to near chance, at"),
    (record(0.1, 0.1, 0.1, 0.1), record(0.9, 0.92, 0.1, 0.1), "(0.92 at best): without it the run stays near chance, with it the run f"),
    (record(0.1, 0.1, 0.1, 0.1), record(0.8, 0.8, 0.8, 0.897), "0.90: without it the run stays near chance, with it the run trains"),
    (record(0.9, 0.9, 0.9, 0.9), record(0.9, 0.9, 0.9, 0.99), ": it trains without warm-up too, at"),
    (record(0.2, 0.2, 0.2, 0.6), record(0.2, 0.2, 0.2, 0.8), ": warm-up ends higher by 0.20, at"),
    (record(0.2, 0.2, 0.2, 0.95), record(0.2, 0.2, 0.2, 0.7), ": warm-up ends lower by 0.25, at"),
    (record(0.2, 0.2, 0.2, 0.89), record(0.2, 0.2, 0.2, 0.92), ": no clear difference, at"),
    (
        record(0.1), record(0.9),
        "without warm-up 0.10 after 1 epoch, with 3 epochs of warm-up 0.90: too short to tell, since the warm-up had not ended",
    ),
    (record(0.9, ranks=1), record(0.9, ranks=1), ": with 1 rank the rate is not scaled, and warm-up changes nothing"),
    (record(status="failed"), record(0.9), "nothing to compare: the run without warm-up failed"),
    (
        record(status="failed"), record(status="timeout"),
        "nothing to compare: the run without warm-up failed and the run with warm-up ran out of time",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("without", "warmed", "message"), SENTENCES, ids=[message[-60:] for _, _, message in SENTENCES])
def test_the_sentence_says_what_the_numbers_show(without, warmed, message):
    assert message in conclusion(without, warmed)


def test_a_plot_has_its_points_where_the_values_are():
    assert plot({"a": [0.0, 0.5, 1.0], "b": [0.0, 1.0, None]}, height=11) == [
        " 1.0 |    +  o",
        "     |",
        " 0.8 |",
        "     |",
        " 0.6 |",
        "     |    o",
        " 0.4 |",
        "     |",
        " 0.2 |",
        "     |",
        " 0.0 | *",
        "     +--------",
        "       1     3 epoch",
        "       o a   + b   * both",
    ]


@pytest.mark.parametrize("num_epochs", [1, 2, 14, 500])
def test_a_plot_fits_a_terminal(num_epochs):
    lines = plot({"a": [0.5] * num_epochs, "b": []})
    assert max(map(len, lines)) <= 80
    assert lines[10].count("o") == min(num_epochs, 65)
    assert plot({"a": [], "b": [None] * num_epochs}) == ["nothing to plot"]


@pytest.mark.matrix
def test_a_lesson_runs_and_leaves_two_records(checkout, tmp_path):
    lesson = ("warmup", "--ranks", 2, "--epochs", 1, "--results", tmp_path, "--machine", "here")
    done = completed(BIN / "python", "-m", "launch.lessons", *lesson, cwd=checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert left_over(checkout) == []
    warmed, without = records_in(tmp_path)
    for record_of_run in (without, warmed):
        valid(record_of_run)
        assert (record_of_run["status"], record_of_run["num_ranks"], len(record_of_run["accuracies"])) == ("ok", 2, 1)
    assert set(without["learning_rates"]) == {0.02}
    assert max(warmed["learning_rates"]) == pytest.approx(0.01 * (1 + 1 / 3))
    assert without["parameter_digests"][0] == warmed["parameter_digests"][0]
    assert f"{without['accuracy']:.4f}" in done.stdout
    assert "+ accuracy with warm-up" in done.stdout
    assert "too short to tell" in done.stdout
