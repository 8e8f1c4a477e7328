"""Whether the machine was as fast beside every run."""

import pytest

from tests.support.answers import answered
from tests.support.made_records import made, noisy


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        (
            [noisy([10.0, 10.0]), noisy([10.0, 8.0], repeat=1), noisy([10.6, 10.0], repeat=2)],
            "beside 1 of 3 runs, and 20 % below it after {}-r1.",
        ),
        (
            [noisy([10.0, 10.0]), noisy([12.0, 9.0], repeat=1), noisy([10.0, 10.0], repeat=2)],
            "beside 2 of 3 runs, and 20 % above it before {}-r1.",
        ),
        # Both kernels count.
        (
            [noisy([10.0, 10.0]), noisy([10.0, 10.0], repeat=1), noisy([10.0, 10.0], copies=[100.0, 50.0], repeat=2)],
            "beside 2 of 3 runs, and 50 % below it after {}-r2.",
        ),
        # Of another size, of another matrix, and not known.
        (
            [noisy([5.0, 5.0], num_ranks=2), noisy([20.0, 20.0], stamp="20260202-000000"), noisy([None] * 2, [None] * 2)],
            "before and after every run.",
        ),
    ],
)
def test_beside_how_many_runs_the_machine_was_steady_is_told_and_the_largest_deviation(records, sentence):
    steady = "The machine's speed was within 5 % of its median"
    reliability = answered(records).answer.reliability[0]
    assert reliability == f"All {len(records)} runs reached the target, in sync. {steady} {sentence.format('20260101-000000-cnn-ddp-n1')}"
    assert "speed" not in answered([made()]).answer.reliability[0]
