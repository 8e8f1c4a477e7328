"""--until: a matrix repeats until its intervals are narrow, and no longer."""

import numpy as np
import pytest

from common.config import Settings
from common.errors import UserError
from launch.report import widths
from launch.report.widths import Width
from launch.run import session, until
from launch.run.matrix_options import Matrix, RunSettings
from launch.run.plan import plan
from tests.support.answers import answered
from tests.support.made_records import made, repeats, typed

NOISY = [10.0, 12.0, 10.0, 12.0, 10.0, 12.0]
STEADY = [10.0] * 6
LAST = [*repeats(STEADY), *repeats(NOISY, backend="single")]
NOISY_WIDTH = widths.by_size(typed(LAST))["cnn", 1]
WITHOUT_RATIO = "--until {} has no effect on cnn at 2 ranks: no ratio of two backends"


def test_too_few_repeats_for_a_verdict_are_refused():
    with pytest.raises(UserError, match="--until needs --repeats as its limit, at least 6, which a verdict takes; it is 1"):
        until.check(5.0, 1)
    until.check(5.0, 6)
    until.check(None, 1)


def test_widths_are_of_the_widest_interval_at_a_size():
    made_records = [
        *repeats(STEADY), *repeats(STEADY, backend="single"), *repeats(NOISY, backend="horovod_tf"),
        *repeats(STEADY, num_ranks=2), *repeats(STEADY, num_ranks=2, backend="horovod_tf"), *repeats(STEADY, num_ranks=4),
    ]  # fmt: skip
    measured = widths.by_size(typed(made_records))
    assert measured.keys() == {("cnn", 1), ("cnn", 2)}
    assert measured["cnn", 1].percent > 10
    assert measured["cnn", 2] == Width(pytest.approx(0), 6)
    # Too few for a verdict.
    assert widths.by_size(typed([*repeats(STEADY[:5]), *repeats(STEADY[:5], backend="single")])) == {}


@pytest.mark.parametrize(("width", "expected"), [(Width(10.0, 6), 24), (Width(5.0, 6), 6), (Width(2.0, 8), 8), (Width(6.0, 7), 11)])
def test_the_width_falls_with_the_square_root_of_the_repeats(width, expected):
    assert width.expected_repeats(5.0) == expected


def test_the_expected_repeats_are_printed():
    assert widths.describe({("cnn", 2): Width(10.0, 6), ("cnn", 1): Width(3.0, 6)}, 5.0, 20) == [
        "cnn, 1 rank: every interval within ±3.0 % after 6 repeats, which is enough",
        "cnn, 2 ranks: every interval within ±10.0 % after 6 repeats; ±5 % is expected after 24, the limit is 20",
    ]


@pytest.mark.parametrize(
    ("percent", "num_repeats", "lines"),
    [
        (None, 1, []),
        (5.0, 6, ["--until 5 has no effect: a verdict takes 6 repeats, and --repeats is 6"]),
        (99.0, 7, [WITHOUT_RATIO.format(99)]),
        (5.0, 30, [WITHOUT_RATIO.format(5), f"in the last matrix here: cnn, 1 rank: {NOISY_WIDTH.describe(5.0)}, the limit is 30"]),
    ],
)
def test_what_keeps_it_from_ending_the_repeats_is_said_before_the_start(percent, num_repeats, lines):
    jobs = plan(["single", "ddp"], ["cnn"], (1, 2), 2, None, Settings())
    before_the_last = repeats(STEADY, stamp="20250101-000000") + repeats(STEADY, backend="single", stamp="20250101-000000")
    assert until.hindrances(jobs, percent, num_repeats, typed(before_the_last + LAST)) == lines


def test_intervals_that_end_the_repeats_are_wider_than_those_that_do_not():
    records = [record | {"settings": record["settings"] | {"until": 5.0}} for record in LAST]
    # Student's t of 5 degrees of freedom at 0.05 / 2 on two sides over that at 0.05: 3.163 / 2.571.
    wider = np.log1p(widths.by_size(typed(records))["cnn", 1].percent / 100) / np.log1p(NOISY_WIDTH.percent / 100)
    assert wider == pytest.approx(3.163 / 2.571, rel=1e-3)


def test_the_report_says_what_came_of_it():
    changes = {"settings": {"until": 5.0}}
    records = [*repeats(STEADY, **changes), *repeats(STEADY, backend="single", **changes), *repeats(STEADY, num_ranks=2, **changes)]
    assert answered(records).notes == [
        "cnn, weak scaling, 1 rank, --until 5: every interval within ±0.0 % after 6 repeats, which is enough.",
        "cnn, weak scaling, 2 ranks, --until 5: no ratio with a verdict ends the repeats.",
    ]


@pytest.mark.parametrize(("percent", "num_runs"), [(5.0, {1: 12, 2: 16}), (None, {1: 16, 2: 16})])
def test_a_size_is_not_repeated_once_its_intervals_are_narrow(percent, num_runs):
    jobs = plan(["ddp", "horovod_tf"], ["cnn"], (1, 2), 8, None, Settings(machine="here"))
    done, lines = [], []
    for lines_before, group in session.needed(Matrix(run=RunSettings(until=percent), repeats=8), jobs, done):
        lines += lines_before
        for _, job in group:
            noisy = job.num_ranks == 2 and job.backend == "ddp"
            seconds = 15.0 if noisy and job.settings.repeat % 2 else 10.0
            done += typed([made(job.backend, job.num_ranks, job.settings.repeat, seconds)])
    assert {size: sum(record.num_ranks == size for record in done) for size in (1, 2)} == num_runs
    enough = "cnn, 1 rank: every interval within ±0.0 % after 6 repeats, which is enough"
    assert any(line.startswith(enough) for line in lines) == (percent is not None)
