"""What framework, library and transport have to do with a difference between backends."""

import pytest

from tests.support.answers import section
from tests.support.made_records import repeats

# Of records made with these, an epoch takes half of them less half a second.
SECONDS = [9.0, 10.0, 11.0, 9.0, 10.0, 11.0]
AT = "cnn, weak scaling, 2 ranks, seconds per epoch, the"
FOUR = {("ddp", "gloo"): 1.1, ("ddp@mpi", "mpi"): 1.0, ("horovod_torch", "mpi"): 1.2, ("horovod_torch@gloo", "gloo"): 1.43}


def parts(factors, num_repeats=6, num_ranks=2, **changes):
    """The sentences on records of {(backend, transport): seconds per epoch, as a multiple of the same, or for each repeat}."""
    records = []
    for (backend, transport), factor in factors.items():
        factors_of_repeats = factor if isinstance(factor, tuple) else (factor,) * num_repeats
        seconds = [factor_of_repeat * (time - 1) + 1 for factor_of_repeat, time in zip(factors_of_repeats, SECONDS, strict=False)]
        records += repeats(seconds, backend=backend, num_ranks=num_ranks, transport=transport, **changes)
    return [sentence for sentence in section(records, "first").sentences if any(word in sentence for word in ("part", "together"))]


def test_entries_that_differ_in_one_factor_are_compared_with_the_fastest_of_them():
    interval = "(95 % interval {0} to {0}, 6 pairs)"
    assert parts(FOUR) == [
        f"{AT} library's part: horovod_torch takes 1.20 times ddp@mpi's {interval.format('1.20')}, "
        f"horovod_torch@gloo takes 1.30 times ddp's {interval.format('1.30')}.",
        f"{AT} transport's part: ddp takes 1.10 times ddp@mpi's {interval.format('1.10')}, "
        f"horovod_torch@gloo takes 1.19 times horovod_torch's {interval.format('1.19')}.",
        "cnn, weak scaling, 2 ranks, seconds per epoch, library and transport together: "
        f"horovod_torch@gloo for horovod_torch costs 1.08 times what ddp for ddp@mpi costs {interval.format('1.08')}.",
    ]


def test_the_framework_is_told_by_one_library_and_a_stage_of_zero_is_a_library_of_its_own():
    factors = {("ddp", "gloo"): 1.0, ("horovod_torch", "mpi"): 1.1, ("horovod_tf", "mpi"): 0.55, ("deepspeed_zero@3", "gloo"): 2.0}
    by_framework, by_library, unknown = parts(factors)
    assert by_framework.startswith(f"{AT} framework's part: horovod_torch takes 2.00 times horovod_tf's")
    assert by_library.startswith(f"{AT} library's part: deepspeed_zero@3 takes 2.00 times ddp's")
    assert unknown == "cnn, weak scaling, 2 ranks: the transport's part is not known, since no library ran over two."


def test_without_a_library_single_and_single_tf_tell_of_the_framework():
    (sentence,) = parts({("single", None): 1.0, ("single_tf", None): 0.9}, num_ranks=1)
    assert "the framework's part: single takes 1.11 times single_tf's" in sentence


def test_at_1_rank_nothing_is_said_of_transports():
    (sentence,) = parts(FOUR, num_ranks=1)
    assert sentence.startswith("cnn, weak scaling, 1 rank, seconds per epoch, the library's part: ")


@pytest.mark.parametrize(
    ("factors", "changes"),
    [
        ({("ddp", "gloo"): 1.0, ("horovod_tf", "gloo"): 1.1}, {}),
        # Not known, as of a record from before it was recorded.
        ({("ddp", None): 1.0, ("ddp@mpi", "mpi"): 1.1}, {}),
        (FOUR, {"oversubscribed": True}),
    ],
)
def test_where_more_than_one_factor_differs_nothing_is_said(factors, changes):
    assert parts(factors, **changes) == []


def test_three_repeats_give_numbers_and_no_verdict():
    for sentence in parts(FOUR, num_repeats=3):
        assert "3 pairs" in sentence
        assert sentence.endswith("; a verdict takes 6 repeats.")


def test_a_factor_without_a_shown_difference_is_said_so():
    (sentence,) = parts({("ddp", "gloo"): 1.0, ("ddp@mpi", "mpi"): (1.2, 0.9) * 3})
    assert sentence.startswith(f"{AT} transport's part: ddp@mpi takes")
    assert "(no difference shown, 95 % interval 0." in sentence
