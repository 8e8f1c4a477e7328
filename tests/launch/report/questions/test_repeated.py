"""Whether matrices agree: each one's verdicts by itself, and sentences on them."""

import pytest

from tests.support.answers import answered, section
from tests.support.made_records import made

STAMPS = ("20260101-000000", "20260101-060000")
SPREAD = (1.00, 1.02, 0.98, 1.01, 0.99, 1.0)
SECONDS = {"ddp": 12.0, "fsdp": 10.0}


def matrix(stamp, num_repeats=6, first_seed=1, **seconds):
    """The records of a matrix in which each backend has these seconds, with a spread that differs between backends."""
    return [
        made(
            backend=backend, repeat=repeat, seconds=typical * SPREAD[(repeat + shift) % 6], stamp=stamp, num_ranks=2,
            seed=first_seed + repeat, started_at=f"2026-01-01T{stamp[9:11]}:{repeat:02d}:00Z",
        )
        for shift, (backend, typical) in enumerate(seconds.items())
        for repeat in range(num_repeats)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "counts", "verdicts"),
    [
        (SECONDS, {"ddp": 15.0, "fsdp": 10.0}, (1, 1, 0, 0), []),
        ({"ddp": 10.0, "fsdp": 12.0}, {"ddp": 10.0, "fsdp": 15.0}, (1, 1, 0, 0), []),
        ({"ddp": 10.0, "fsdp": 10.0}, {"ddp": 10.0, "fsdp": 10.0}, (0, 0, 0, 1), []),
        (SECONDS, {"ddp": 10.0, "fsdp": 10.0}, (1, 0, 0, 0), ["slower", "no difference shown"]),
        (SECONDS, {"ddp": 10.0, "fsdp": 12.0}, (1, 0, 1, 0), ["slower", "faster"]),
    ],
)
def test_two_matrices_agree_on_a_pair_or_not(first, second, counts, verdicts):
    answer = section([*matrix(STAMPS[0], **first), *matrix(STAMPS[1], **second)], "repeated")
    (sentence,) = answer.sentences
    assert sentence.startswith("cnn, weak scaling, 2 ranks: of the matrices begun at 2026-01-01T00:00:00Z and 2026-01-01T06:00:00Z, ")
    shown = "one or more show a difference for {} pairs of backends, all for {}, opposite ones for {}; no difference shown for {}."
    assert sentence.endswith(shown.format(*counts))
    assert [row[-1] for table in answer.tables for row in table.rows] == verdicts


@pytest.mark.parametrize(("first_seed", "words"), [(7, "with other seeds"), (6, "with seeds in common"), (1, "with seeds in common")])
def test_whether_matrices_repeat_each_others_trainings_is_said(first_seed, words):
    answer = section([*matrix(STAMPS[0], **SECONDS), *matrix(STAMPS[1], first_seed=first_seed, **SECONDS)], "repeated")
    assert f"06:00:00Z, {words}, one or more show" in answer.sentences[0]


@pytest.mark.parametrize(
    "records",
    [
        matrix(STAMPS[0], **SECONDS),
        [*matrix(STAMPS[0], **SECONDS), *matrix(STAMPS[1], num_repeats=5, **SECONDS)],
        [record | {"oversubscribed": True} for stamp in STAMPS for record in matrix(stamp, **SECONDS)],
    ],
)
def test_one_matrix_too_few_repeats_or_oversubscribed_entries_say_nothing(records):
    assert "repeated" not in [section.key for section in answered(records).sections]
