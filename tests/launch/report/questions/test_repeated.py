"""Whether matrices agree: each one's verdicts by itself, and sentences on them."""

import pytest

from launch.report import entries
from launch.report.questions import repeated
from tests.support.made_records import made, typed

STAMPS = ("20260101-000000", "20260101-060000")
SPREAD = (1.00, 1.02, 0.98, 1.01, 0.99, 1.0)


def matrix(stamp, num_repeats=6, **seconds):
    """The records of a matrix in which each backend has these seconds, with a spread that differs between backends."""
    return [
        made(
            backend=backend, repeat=repeat, seconds=typical * SPREAD[(repeat + shift) % 6], stamp=stamp, num_ranks=2,
            started_at=f"2026-01-01T{stamp[9:11]}:{repeat:02d}:00Z",
        )
        for shift, (backend, typical) in enumerate(seconds.items())
        for repeat in range(num_repeats)
    ]  # fmt: skip


def answer(first, second):
    return repeated.answer(entries.comparisons(typed([*matrix(STAMPS[0], **first), *matrix(STAMPS[1], **second)])))


@pytest.mark.parametrize(
    ("first", "second", "ending", "directions"),
    [
        ({"ddp": 12.0, "fsdp": 10.0}, {"ddp": 15.0, "fsdp": 10.0}, "the same verdict on 1 of 1 pairs of backends.", [1, 1]),
        ({"ddp": 10.0, "fsdp": 12.0}, {"ddp": 10.0, "fsdp": 15.0}, "the same verdict on 1 of 1 pairs of backends.", [-1, -1]),
        ({"ddp": 10.0, "fsdp": 10.0}, {"ddp": 10.0, "fsdp": 10.0}, "the same verdict on 1 of 1 pairs of backends.", [0, 0]),
        (
            {"ddp": 12.0, "fsdp": 10.0},
            {"ddp": 10.0, "fsdp": 10.0},
            "the same verdict on 0 of 1 pairs of backends; opposite verdicts: 0, a difference that not all show: 1.",
            [1, 0],
        ),
        (
            {"ddp": 12.0, "fsdp": 10.0},
            {"ddp": 10.0, "fsdp": 12.0},
            "0 of 1 pairs of backends; opposite verdicts: 1, a difference that not all show: 0.",
            [1, -1],
        ),
    ],
)
def test_two_matrices_agree_on_a_pair_or_not(first, second, ending, directions):
    sentences, tables = answer(first, second)
    (sentence,) = sentences
    assert sentence.startswith("cnn, weak scaling, 2 ranks: the matrices begun at 2026-01-01T00:00:00Z and 2026-01-01T06:00:00Z give ")
    assert sentence.endswith(ending)
    words = {1: "slower", 0: "no difference shown", -1: "faster"}
    shown = [] if len(set(directions)) == 1 else [words[one] for one in directions]
    assert [row[-1] for table in tables for row in table.rows] == shown


def test_one_matrix_or_too_few_repeats_say_nothing():
    seconds = {"ddp": 12.0, "fsdp": 10.0}
    assert repeated.answer(entries.comparisons(typed(matrix(STAMPS[0], **seconds)))) == ([], [])
    few = [*matrix(STAMPS[0], **seconds), *matrix(STAMPS[1], num_repeats=5, **seconds)]
    assert repeated.answer(entries.comparisons(typed(few))) == ([], [])


def test_oversubscribed_entries_are_left_out():
    records = [record | {"oversubscribed": True} for stamp in STAMPS for record in matrix(stamp, ddp=12.0, fsdp=10.0)]
    assert repeated.answer(entries.comparisons(typed(records))) == ([], [])
