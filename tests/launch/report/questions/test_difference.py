"""What framework, library and transport have to do with a difference between backends."""

import pytest

from tests.support.answers import answered, line, lines
from tests.support.made_records import repeats

# Of records made with these, an epoch takes half of them less half a second.
SECONDS = [9.0, 10.0, 11.0, 9.0, 10.0, 11.0]
AT = "cnn, weak scaling, 2 ranks, seconds per epoch (6 pairs),"
FOUR = {("ddp", "gloo"): 1.1, ("ddp@mpi", "mpi"): 1.0, ("horovod_torch", "mpi"): 1.2, ("horovod_torch@gloo", "gloo"): 1.43}


def seconds_of(factor):
    """Six times to solution whose epochs take a multiple, or one for each of them, of the seconds of SECONDS."""
    factors_of_repeats = factor if isinstance(factor, tuple) else (factor,) * len(SECONDS)
    return [factor_of_repeat * (time - 1) + 1 for factor_of_repeat, time in zip(factors_of_repeats, SECONDS, strict=True)]


def records_of(cells, num_repeats=6, num_ranks=2, **changes):
    """The records of {(backend, transport): seconds per epoch, as a multiple of the same, or for each repeat}."""
    records = []
    for (backend, transport), factor in cells.items():
        records += repeats(seconds_of(factor)[:num_repeats], backend=backend, num_ranks=num_ranks, transport=transport, **changes)
    return records


def sentences_of(records):
    return next((section.sentences for section in answered(records).sections if section.key == "difference"), [])


def test_entries_that_differ_in_one_factor_are_compared_with_the_fastest_of_them():
    rows = [
        (row["differs in"], row["backend"], row["compared with"], f"{row['ratio of seconds per epoch']:.2f}", row["verdict"])
        for row in lines(records_of(FOUR), "difference")
    ]
    assert rows == [
        ("library", "horovod_torch", "ddp@mpi", "1.20", "slower"),
        ("library", "horovod_torch@gloo", "ddp", "1.30", "slower"),
        ("transport", "ddp", "ddp@mpi", "1.10", "slower"),
        ("transport", "horovod_torch@gloo", "horovod_torch", "1.19", "slower"),
    ]


def test_sentences_say_what_is_over_what_and_with_what():
    assert sentences_of(records_of(FOUR)) == [
        f"{AT} library: Horovod over ddp, with mpi: 1.20 (1.20 to 1.20); Horovod over ddp, with gloo: 1.30 (1.30 to 1.30).",
        # Library and transport interact, so there is no average: over the slower transport Horovod loses 19 %, and DDP 10 %.
        f"{AT} transport: gloo over mpi, with ddp: 1.10 (1.10 to 1.10); gloo over mpi, with horovod_torch: 1.19 (1.19 to 1.19).",
    ]


def test_the_intervals_are_those_of_the_ratios_to_the_fastest():
    varying = tuple(1.1 * noise for noise in (1.0, 1.02, 0.99, 1.0, 0.97, 1.03))
    made = records_of(FOUR | {("ddp", "gloo"): varying})
    (effect,) = (row for row in lines(made, "difference") if row["backend"] == "ddp")
    assert effect["compared with"] == "ddp@mpi"
    assert effect["95 % interval"] == line(made, "first", backend="ddp")["95 % interval"]


def test_the_framework_is_told_by_one_library_and_a_stage_of_zero_is_a_library_of_its_own():
    cells = {("ddp", "gloo"): 1.0, ("horovod_torch", "mpi"): 1.1, ("horovod_tf", "mpi"): 0.55, ("deepspeed_zero@3", "gloo"): 2.0}
    by_framework, by_library = sentences_of(records_of(cells))
    assert by_framework.startswith(f"{AT} framework: PyTorch over TensorFlow, with Horovod and mpi: 2.00 (")
    assert by_library.startswith(f"{AT} library: deepspeed_zero@3 over ddp, with gloo: 2.00 (")


def test_without_a_library_single_and_single_tf_tell_of_the_framework():
    (sentence,) = sentences_of(records_of({("single", None): 1.0, ("single_tf", None): 0.9}, num_ranks=1))
    assert "framework: PyTorch over TensorFlow, without a library: 1.11 (" in sentence


def test_at_1_rank_nothing_is_said_of_transports():
    (sentence,) = sentences_of(records_of(FOUR, num_ranks=1))
    assert sentence.startswith("cnn, weak scaling, 1 rank, seconds per epoch (6 pairs), library: ")


@pytest.mark.parametrize(
    ("cells", "changes"),
    [
        ({("ddp", "gloo"): 1.0, ("horovod_tf", "gloo"): 1.1}, {}),
        # Not known, as of a record from before it was recorded.
        ({("ddp", None): 1.0, ("ddp@mpi", "mpi"): 1.1}, {}),
        (FOUR, {"oversubscribed": True}),
    ],
)
def test_where_more_than_one_factor_differs_nothing_is_said(cells, changes):
    assert sentences_of(records_of(cells, **changes)) == []


def test_three_repeats_give_numbers_and_no_verdict():
    for sentence in sentences_of(records_of(FOUR, num_repeats=3)):
        assert "3 pairs" in sentence
        assert sentence.endswith("; a verdict takes 6 repeats.")


def test_a_factor_without_a_shown_difference_is_said_so():
    (sentence,) = sentences_of(records_of({("ddp", "gloo"): 1.0, ("ddp@mpi", "mpi"): (1.2, 0.9) * 3}))
    assert sentence.startswith(f"{AT} transport: mpi over gloo, with ddp: 1.04 (no difference shown, 0.")
