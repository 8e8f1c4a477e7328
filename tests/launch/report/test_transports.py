"""The library's part and the transport's in a difference between backends."""

import pytest

from tests.support.answers import section
from tests.support.made_records import repeats

# Of records made with these, an epoch takes half of them less half a second.
SECONDS = [9.0, 10.0, 11.0, 9.0, 10.0, 11.0]
AT = "cnn, weak scaling, 2 ranks, seconds per epoch, the"


def records(factors, num_repeats=6, **changes):
    """Records of {(backend, transport): seconds per epoch, as a multiple of the same}."""
    made_records = []
    for (backend, transport), factor in factors.items():
        seconds = [factor * (time - 1) + 1 for time in SECONDS[:num_repeats]]
        made_records += repeats(seconds, backend=backend, num_ranks=2, transport=transport, **changes)
    return made_records


def parts(made_records):
    return [sentence for sentence in section(made_records, "first").sentences if "'s part" in sentence]


FOUR = {("ddp", "gloo"): 1.1, ("ddp@mpi", "mpi"): 1.0, ("horovod_torch", "mpi"): 1.2, ("horovod_torch@gloo", "gloo"): 1.43}


def test_libraries_are_compared_on_one_transport_and_transports_under_one_library():
    interval = "(95 % interval {0} to {0}, 6 pairs)"
    assert parts(records(FOUR)) == [
        f"{AT} library's part: over MPI horovod_torch takes 1.20 times ddp's {interval.format('1.20')}, "
        f"over Gloo horovod_torch takes 1.30 times ddp's {interval.format('1.30')}.",
        f"{AT} transport's part: under ddp Gloo takes 1.10 times MPI's {interval.format('1.10')}, "
        f"under horovod_torch Gloo takes 1.19 times MPI's {interval.format('1.19')}.",
    ]


def test_a_library_on_one_transport_is_compared_there_and_a_stage_of_zero_is_a_library_of_its_own():
    made_records = records({("ddp", "gloo"): 1.0, ("ddp@mpi", "mpi"): 1.1, ("horovod_tf", "mpi"): 0.55, ("deepspeed_zero@3", "gloo"): 2.0})
    by_library, by_transport = parts(made_records)
    assert "over MPI horovod_tf takes 0.50 times ddp's" in by_library
    assert "over Gloo deepspeed_zero@3 takes 2.00 times ddp's" in by_library
    assert by_transport.startswith(f"{AT} transport's part: under ddp MPI takes 1.10 times Gloo's")


@pytest.mark.parametrize(
    "factors",
    [
        {("ddp", "gloo"): 1.0, ("horovod_torch", "mpi"): 1.1},
        # Not known, as of a record from before it was recorded.
        {("ddp", None): 1.0, ("ddp@mpi", "mpi"): 1.1},
        {("deepspeed_zero", "gloo"): 1.0, ("deepspeed_zero@3", "gloo"): 1.1},
    ],
)
def test_without_a_library_on_two_transports_nothing_is_said(factors):
    assert parts(records(factors)) == []


def test_one_library_alone_tells_of_the_transport_alone():
    (sentence,) = parts(records({("ddp", "gloo"): 1.0, ("ddp@mpi", "mpi"): 1.1}))
    assert sentence.startswith(f"{AT} transport's part: under ddp MPI takes 1.10 times Gloo's")


def test_three_repeats_give_numbers_and_no_verdict():
    for sentence in parts(records(FOUR, num_repeats=3)):
        assert "3 pairs" in sentence
        assert sentence.endswith("; a verdict takes 6 repeats.")


def test_an_interval_that_holds_1_shows_no_difference():
    made_records = records({("ddp", "gloo"): 1.0})
    made_records += repeats(
        [seconds * factor for seconds, factor in zip(SECONDS, (1.1, 0.9) * 3, strict=True)], backend="ddp@mpi", num_ranks=2, transport="mpi"
    )
    (sentence,) = parts(made_records)
    assert "(no difference shown, 95 % interval 0." in sentence


def test_oversubscribed_entries_are_left_out():
    assert parts(records(FOUR, oversubscribed=True)) == []
