"""The library's part and the transport's in a difference between backends."""

import pytest

from tests.support.answers import section
from tests.support.made_records import repeats

# Of records made with these, an epoch takes half of them less half a second.
SECONDS = [9.0, 10.0, 11.0, 9.0, 10.0, 11.0]
AT = "cnn, weak scaling, 2 ranks, seconds per epoch, the"
FOUR = {("ddp", "gloo"): 1.1, ("ddp@mpi", "mpi"): 1.0, ("horovod_torch", "mpi"): 1.2, ("horovod_torch@gloo", "gloo"): 1.43}


def parts(factors, num_repeats=6, **changes):
    """The sentences on records of {(backend, transport): seconds per epoch, as a multiple of the same, or for each repeat}."""
    records = []
    for (backend, transport), factor in factors.items():
        factors_of_repeats = factor if isinstance(factor, tuple) else (factor,) * num_repeats
        seconds = [factor_of_repeat * (time - 1) + 1 for factor_of_repeat, time in zip(factors_of_repeats, SECONDS, strict=False)]
        records += repeats(seconds, backend=backend, num_ranks=2, transport=transport, **changes)
    return [sentence for sentence in section(records, "first").sentences if " part" in sentence]


def test_libraries_are_compared_on_one_transport_and_transports_under_one_library():
    interval = "(95 % interval {0} to {0}, 6 pairs)"
    assert parts(FOUR) == [
        f"{AT} library's part: over MPI horovod_torch takes 1.20 times ddp's {interval.format('1.20')}, "
        f"over Gloo horovod_torch takes 1.30 times ddp's {interval.format('1.30')}.",
        f"{AT} transport's part: under ddp Gloo takes 1.10 times MPI's {interval.format('1.10')}, "
        f"under horovod_torch Gloo takes 1.19 times MPI's {interval.format('1.19')}.",
        f"{AT} part of both together: Gloo for MPI costs horovod_torch 1.08 times what it costs ddp {interval.format('1.08')}.",
    ]


def test_a_library_on_one_transport_is_compared_there_and_a_stage_of_zero_is_a_library_of_its_own():
    factors = {("ddp", "gloo"): 1.0, ("ddp@mpi", "mpi"): 1.1, ("horovod_tf", "mpi"): 0.55, ("deepspeed_zero@3", "gloo"): 2.0}
    by_library, by_transport = parts(factors)
    assert "over MPI horovod_tf takes 0.50 times ddp's" in by_library
    assert "over Gloo deepspeed_zero@3 takes 2.00 times ddp's" in by_library
    assert by_transport.startswith(f"{AT} transport's part: under ddp MPI takes 1.10 times Gloo's")


@pytest.mark.parametrize(
    ("factors", "changes"),
    [
        # Not known, as of a record from before it was recorded.
        ({("ddp", None): 1.0, ("ddp@mpi", "mpi"): 1.1}, {}),
        ({("deepspeed_zero", "gloo"): 1.0, ("deepspeed_zero@3", "gloo"): 1.1}, {}),
        (FOUR, {"oversubscribed": True}),
    ],
)
def test_without_a_library_on_two_transports_nothing_is_said(factors, changes):
    assert parts(factors, **changes) == []


def test_where_library_and_transport_change_together_that_is_said():
    (sentence,) = parts({("ddp", "gloo"): 1.0, ("horovod_torch", "mpi"): 1.1})
    assert sentence.endswith("is not known, since no library ran over two transports.")


def test_three_repeats_give_numbers_and_no_verdict():
    for sentence in parts(FOUR, num_repeats=3):
        assert "3 pairs" in sentence
        assert sentence.endswith("; a verdict takes 6 repeats.")


@pytest.mark.parametrize(
    ("factor", "text"), [(1.1, "under ddp MPI takes 1.10 times Gloo's ("), ((1.2, 0.9) * 3, "(no difference shown, 95 % interval 0.")]
)
def test_one_library_alone_tells_of_the_transport_alone(factor, text):
    (sentence,) = parts({("ddp", "gloo"): 1.0, ("ddp@mpi", "mpi"): factor})
    assert sentence.startswith(f"{AT} transport's part: under ddp MPI takes")
    assert text in sentence
