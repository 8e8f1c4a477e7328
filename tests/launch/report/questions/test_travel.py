"""Factors over machines: planted factors are found on each machine, and two machines say that they cannot tell."""

import math

import pytest

from launch.report import several
from launch.report.questions import travel
from tests.support.made_records import made, on, typed

BACKENDS = {
    "ddp": ("PyTorch", "ddp", "gloo"), "ddp@mpi": ("PyTorch", "ddp", "mpi"), "horovod_torch": ("PyTorch", "Horovod", "mpi"),
    "horovod_torch@gloo": ("PyTorch", "Horovod", "gloo"), "horovod_tf": ("TensorFlow", "Horovod", "mpi"),
    "horovod_keras": ("Keras", "Horovod", "mpi"), "deepspeed_zero": ("PyTorch", "deepspeed_zero", "gloo"),
}  # fmt: skip
FACTORS = {"TensorFlow": 0.8, "ddp": 0.9, "deepspeed_zero": 1.3, "gloo": 1.25}


def matrix(factors, interaction=1.0, backends=tuple(BACKENDS), num_repeats=6):
    """A matrix in which every level multiplies the seconds per epoch by its factor; `interaction` is that of ddp with Gloo."""
    records = []
    for backend in backends:
        product = math.prod(factors.get(level, 1.0) for level in BACKENDS[backend]) * (interaction if backend == "ddp" else 1.0)
        for repeat in range(num_repeats):
            seconds_of_epoch = 5.0 * (1 + repeat / 10) * product * (1 + 0.001 * ((repeat * len(backend)) % 5))
            records.append(
                made(backend=backend, num_ranks=2, repeat=repeat, seconds=2 * seconds_of_epoch + 1, transport=BACKENDS[backend][2])
            )
    return records


def answer(*matrices):
    return several.of_machines(typed([record for number, records in enumerate(matrices) for record in on(f"m{number}", records)]))


def rows(*matrices):
    """The rows of the table of factors, by ratio."""
    (table,) = next(section for section in answer(*matrices).sections if section.key == "travel").tables
    return {row[2]: dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows}


def test_each_factor_of_each_machine_is_found():
    elsewhere = {**FACTORS, "TensorFlow": 0.5}
    of = rows(matrix(FACTORS), matrix(elsewhere))
    expected = {
        "TensorFlow to PyTorch": (0.8, 0.5),
        "ddp to Horovod": (0.9, 0.9),
        "deepspeed_zero to Horovod": (1.3, 1.3),
        "gloo to mpi": (1.25, 1.25),
    }
    for ratio, values in expected.items():
        assert (of[ratio]["m0"], of[ratio]["m1"]) == pytest.approx(values, rel=0.005)
    assert of["gloo to mpi, of ddp to Horovod"]["m0"] == pytest.approx(1.0, rel=0.01)
    assert of["TensorFlow to PyTorch"]["machine's share of variance (%)"] > 99
    assert "gloo to mpi, of deepspeed_zero to Horovod" not in of, "ZeRO ran over Gloo alone"


def test_an_interaction_is_found_beside_the_average_of_the_transport():
    of = rows(matrix(FACTORS, interaction=1.21), matrix(FACTORS, interaction=1.21))
    assert of["gloo to mpi, of ddp to Horovod"]["m1"] == pytest.approx(1.21, rel=0.01)
    assert of["gloo to mpi"]["m1"] == pytest.approx(1.25 * 1.1, rel=0.01)


def test_factors_that_the_backends_of_all_machines_cannot_tell_apart_have_no_row():
    assert list(rows(matrix(FACTORS), matrix(FACTORS, backends=("ddp", "ddp@mpi", "horovod_tf")))) == ["gloo to mpi"]


def test_two_machines_cannot_tell_and_three_are_checked_by_leaving_one_out():
    two, three = answer(matrix(FACTORS), matrix(FACTORS)), answer(matrix(FACTORS), matrix(FACTORS), matrix(FACTORS))
    first, second = (next(section for section in answered.sections if section.key == "travel") for answered in (two, three))
    assert travel.TWO_MACHINES in first.sentences
    assert travel.TWO_MACHINES not in second.sentences
    assert second.sentences[-1] == "Left out one at a time, a machine had the ratio that the others predict in 18 of 18 cases."
    assert {row[-1] for row in first.tables[0].rows} == {None}
    assert {row[-1] for row in second.tables[0].rows} == {"3 of 3"}


def test_the_factors_that_change_most_and_least_are_named():
    section = next(
        section for section in answer(matrix(FACTORS), matrix({**FACTORS, "TensorFlow": 0.4})).sections if section.key == "travel"
    )
    assert section.sentences[0].startswith(
        "cnn, weak scaling, 2 ranks: between m0 and m1 the ratio of TensorFlow to PyTorch (framework) changes most, by a factor of 2.0"
    )


@pytest.mark.parametrize(("number", "low", "high"), [(0.32, 0.3, 0.4), (1.06, 1.0, 2.0), (12.1, 10.0, 20.0), (3.0, 3.0, 3.0)])
def test_one_digit_is_rounded_outwards(number, low, high):
    assert travel.one_digit(number, math.floor) == pytest.approx(low)
    assert travel.one_digit(number, math.ceil) == pytest.approx(high)
