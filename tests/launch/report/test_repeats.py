"""Disturbed repeats of a matrix, found from the times of its runs."""

import numpy as np
import pytest

from common.backends import ROOT
from common.record import reading
from launch.report import repeats
from tests.support.made_records import made, typed

QUIET = [10.0, 10.1, 9.9, 10.2, 10.0, 9.8]


def quiet_matrix(generator, num_rows, num_repeats, percent, tails=None):
    """The logarithms of the seconds of an epoch: noise of runs and of repeats, with this standard deviation, Student's t if `tails`."""
    shapes = (num_rows, num_repeats), (1, num_repeats)
    noise = sum(generator.standard_t(tails, shape) if tails else generator.standard_normal(shape) for shape in shapes)
    return generator.uniform(-1, 1, (num_rows, 1)) + percent / 100 * noise


def described(records):
    return {(repeat.comparison, repeat.number) for repeat in repeats.disturbed(records)}


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ("172137", {("cnn, weak scaling", 0), ("cnn, weak scaling", 1), ("transformer, weak scaling", 0)}),
        ("175814", set()),
    ],
)
def test_the_disturbed_repeats_of_committed_matrices_are_found(stamp, expected):
    """Other tests ran at the same time as the first minutes of the first of them."""
    records, _ = reading.collect(sorted((ROOT / "results" / "reference" / "two-cores").glob(f"20261125-{stamp}-*.json")))
    assert len(records) == 204
    assert len(list(repeats.judged(records))) == 12
    assert described(records) == expected


@pytest.mark.parametrize(("num_rows", "num_repeats"), [(2, 6), (7, 6), (17, 6), (7, 12)])
def test_a_quiet_matrix_has_a_disturbed_repeat_as_rarely_as_is_said(num_rows, num_repeats):
    generator = np.random.default_rng(2)
    num_matrices = 1000

    def num_disturbed(percent, tails=None):
        matrices = (quiet_matrix(generator, num_rows, num_repeats, percent, tails) for _ in range(num_matrices))
        return sum(repeats.stand_out(matrix).any() for matrix in matrices)

    # So noisy that every difference counts: chance alone decides. Three standard errors are 0.9 %.
    assert num_disturbed(50.0) / num_matrices <= (repeats.FALSE_PERCENT + 0.9) / 100
    # As noisy as two quiet virtual cores.
    assert num_disturbed(2.0) / num_matrices <= repeats.FALSE_PERCENT / 100
    # With outliers, single runs that are more than 10 % slower.
    assert num_disturbed(1.0, tails=4) / num_matrices <= 4 * repeats.FALSE_PERCENT / 100


@pytest.mark.parametrize(
    ("slowed_down", "expected"),
    [
        ({}, set()),
        # All backends alike, and two of them alone, which is more or less than the usual.
        (dict.fromkeys(("single", "ddp", "horovod_tf", "horovod_torch"), 1.5), {("cnn, weak scaling", 2)}),
        ({"horovod_tf": 1.4, "horovod_torch": 1.5}, {("cnn, weak scaling", 2)}),
        # It stands out, and is too small to matter.
        (dict.fromkeys(("single", "ddp", "horovod_tf", "horovod_torch"), 1.03), set()),
    ],
)
def test_a_repeat_is_disturbed_by_what_slows_down_all_backends_or_some(slowed_down, expected):
    records = []
    for place, backend in enumerate(("single", "ddp", "horovod_tf", "horovod_torch"), 1):
        for repeat, seconds in enumerate(QUIET if place % 2 else reversed(QUIET)):
            factor = slowed_down.get(backend, 1.0) if repeat == 2 else 1.0
            records.append(made(backend, repeat=repeat, seconds=place * seconds * factor))
    assert described(typed(records)) == expected


@pytest.mark.parametrize(
    "records",
    [
        # Two repeats do not show which is disturbed, nor does one backend.
        [made(backend, repeat=repeat, seconds=seconds) for backend in ("single", "ddp") for repeat, seconds in enumerate((10.0, 20.0))],
        [made(repeat=repeat, seconds=seconds) for repeat, seconds in enumerate((10.0, 10.0, 20.0))],
        # Nor repeats of several matrices.
        [made(backend, stamp=f"2026010{day}-000000", seconds=10.0 * day) for backend in ("single", "ddp") for day in (1, 2, 3)],
    ],
)
def test_too_few_runs_are_not_judged(records):
    assert list(repeats.judged(typed(records))) == []


def test_a_run_that_is_missing_leaves_its_repeat_and_its_backend_in():
    records = [
        made(backend, repeat=repeat, seconds=30.0 if repeat == 4 else QUIET[repeat - place])
        for place, backend in enumerate(("single", "ddp", "horovod_tf"))
        for repeat in range(6)
        if (backend, repeat) != ("ddp", 4)
    ]
    (repeat,) = repeats.disturbed(typed(records))
    assert (repeat.number, [run.record.backend for run in repeat.runs]) == (4, ["single", "horovod_tf"])
    # An epoch takes half of what a run takes beyond its first second.
    assert repeat.percent == pytest.approx(100 * (29 / 9 - 1), abs=5)
