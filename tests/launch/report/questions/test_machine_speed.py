"""Whether the machine was as fast beside every run, and every rank as fast as the others."""

import pytest

from tests.support.answers import section
from tests.support.made_records import ended, made, noisy


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
    assert section(records, "machine_speed").sentences == [f"{steady} {sentence.format('20260101-000000-cnn-ddp-n1')}"]


def test_older_records_are_said_to_have_no_noise():
    records = [made(), made(repeat=1), noisy([10.0, 10.0], repeat=2), ended("failed", repeat=3)]
    assert section(records, "machine_speed").sentences == [
        "The machine's speed was within 5 % of its median before and after every run.",
        "It was not measured beside 2 runs, whose records are older.",
    ]


def of_four_ranks(speeds, repeat, hosts=("n1", "n1", "n2", "nid001240")):
    record = noisy([10.0, 10.0], repeat=repeat, num_ranks=4)
    record["machine_noise"]["product_flops_per_second_by_rank"] = speeds
    record["environment"] = record["environment"] | {"host_by_rank": list(hosts)}
    return record


def test_a_slow_rank_is_named_with_its_host():
    slow, disturbed = [100.0, 99.0, 101.0, 92.0], [50.0, 99.0, 101.0, 92.0]
    records = [of_four_ranks(slow, 0), of_four_ranks(disturbed, 1), of_four_ranks(slow, 2)]
    assert "At 4 ranks, rank 3 on nid001240 is 8 % slower than the median." in section(records, "machine_speed").sentences
    assert not any("rank 0" in sentence for sentence in section(records, "machine_speed").sentences)
    steady = [of_four_ranks([100.0, 99.0, 101.0, 98.0], repeat) for repeat in range(2)]
    assert not any("slower than the median" in sentence for sentence in section(steady, "machine_speed").sentences)
