"""Which runs met a machine that was not as fast as beside the others."""

from tests.support.answers import lines, section
from tests.support.made_records import ended, made, noisy


def test_runs_on_a_slower_machine_are_marked():
    records = [noisy([10.0, 10.0]), noisy([10.0, 10.4], repeat=1), noisy([10.0, 7.0], repeat=2), noisy([10.6, 10.0], repeat=3)]
    assert section(records, "quiet").sentences == ["The machine's speed was within 5 % of its median beside 2 of 4 runs."]
    assert [(row["run"], round(row["farthest from the median (%)"])) for row in lines(records, "quiet")] == [
        ("20260101-000000-cnn-ddp-n1-r2", -30), ("20260101-000000-cnn-ddp-n1-r3", 6),
    ]  # fmt: skip
    assert lines(records, "quiet")[0]["involuntary switches"] == 10


def test_older_records_are_said_to_have_no_noise():
    records = [made(), made(repeat=1), noisy([10.0, 10.0], repeat=2), ended("failed", repeat=3)]
    assert section(records, "quiet").sentences == [
        "The machine's speed was within 5 % of its median beside 1 of 1 runs.",
        "It was not measured beside 2 runs, whose records are older.",
    ]
