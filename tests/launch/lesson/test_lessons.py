"""The lessons: what they run, and what they print of it."""

import re

import pytest

from common.data import sharding
from launch.lesson import broken, warmup
from tests.support.forked import run_module
from tests.support.made_records import made, typed
from tests.support.running import BIN, FEW_STEPS, completed, left_over


def test_both_runs_stand_beside_each_other_by_epoch():
    (table,) = warmup.table_of([0.1], [0.5, 0.75])
    assert table.texts == [["1", "0.1000", "0.5000"], ["2", "-", "0.7500"]]


def test_a_broken_run_stands_beside_what_the_checks_say():
    losses, parted = [2.0, 1.0, 0.5], "the ranks have different parameters after epoch 1"
    runs = [
        made(backend="single", losses=losses, accuracy=0.75),
        made(backend="gradient_averaging", num_ranks=2, losses=losses, accuracy=0.75),
        made(backend="same_order", num_ranks=2, losses=[2.0, 1.0, 0.6], accuracy=0.5),
        made(backend="summed_gradients", num_ranks=2, losses=[2.0, 1.0, None], accuracy=0.5),
        made(backend="no_all_reduce", num_ranks=2, losses=[2.0, 1.5], accuracy=0.25, status="failed", error=parted),
    ]
    (table,) = broken.table_of(*typed(runs))
    assert table.texts == [
        ["gradient_averaging", "2.00 to 0.50", "0.7500", "agrees with one process", "0.0e+00"],
        ["same_order", "2.00 to 0.60", "0.5000", "differs from one process from step 3 on", "2.0e-01"],
        ["summed_gradients", "2.00 to not finite", "0.5000", "differs from one process from step 3 on", "inf"],
        ["no_all_reduce", "2.00 to 1.50", "0.2500", parted, "5.0e-01"],
    ]


# Runs of these faults are found in test_agreement.py too.
@pytest.mark.long
def test_the_checks_find_every_broken_run(checkout):
    arguments = ("--epochs", 2, "--machine", "here")
    variables = {sharding.STEPS_VARIABLE: "2"}
    done = completed(BIN / "python", "-m", "launch.lesson.broken", 2, *arguments, cwd=checkout, variables=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = {
        "gradient_averaging": "agrees with one process",
        "no_all_reduce": "the ranks have different parameters after epoch 1",
        "same_shard": "differs from one process from step 1 on",
        "summed_gradients": "differs from one process from step 2 on",
        "same_order": "differs from one process from step 3 on",
    }
    assert [name for name, text in checks.items() if not re.search(rf" {name} .* {text}", done.stdout)] == []
    assert [name for name, fault in broken.FAULTS.items() if f"{name}: {fault.__doc__}" not in done.stdout] == []
    assert left_over(checkout) == []


@pytest.mark.matrix
def test_the_lesson_on_warm_up_runs_a_matrix_for_each_case(checkout):
    done = completed(BIN / "python", "-m", "launch.lesson.warmup", 2, "--dry-run", "--machine", "here", cwd=checkout, variables=FEW_STEPS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--learning-rate 0.01 --warmup-epochs 0.0" in done.stdout
    assert left_over(checkout) == []


def exchange(*arguments):
    return completed(BIN / "mpiexec", "-n", 2, BIN / "python", "-m", "launch.lesson.deadlock", *arguments)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("order", "size", "hangs"),
    [("sends_first", 2**10, False), ("sends_first", 2**24, True), ("in_turn", 2**24, False), ("together", 2**24, False)],
)
def test_blocking_sends_of_large_messages_hang_and_the_cures_do_not(order, size, hangs):
    done = exchange(order, size)
    assert (done.returncode != 0) == hangs, done.stdout + done.stderr
    assert ("hung for 5 s in step 1/4 of epoch 1" in done.stderr) == hangs
    assert done.stdout.count("has exchanged 4 times") == (0 if hangs else 2)


@pytest.mark.parametrize("ranks", ["0", "99999999", "9" * 5000])
def test_a_number_of_ranks_that_is_none_is_refused_before_anything_is_trained(ranks):
    status, output, error = run_module("launch.lesson.broken", ranks)
    assert (status, output, error.count("\n"), ranks[:9] in error) == (2, "", 1, True), error


@pytest.mark.parametrize("arguments", [(), ("backwards", 8), ("in_turn", "much"), ("in_turn", "1" + "0" * 30)])
def test_what_is_no_exchange_is_refused(arguments):
    message = "error: start two ranks: .venv/bin/mpiexec -n 2 .venv/bin/python -m launch.lesson.deadlock sends_first|in_turn|together BYTES"
    assert run_module("launch.lesson.deadlock", *arguments, PMI_RANK="0", PMI_SIZE="2") == (2, "", f"{message}\n")


@pytest.mark.matrix
def test_an_option_of_a_broken_training_that_is_none_is_a_mistake(checkout):
    done = completed(BIN / "python", "-m", "launch.lesson.broken", "--no-such-option", cwd=checkout)
    assert done.returncode == 2
    assert "error: unrecognized arguments: --no-such-option" in done.stderr
