"""What framework, library and transport have to do with a difference between backends."""

import math
import re

import pytest

from launch.report.questions import difference
from tests.support.answers import answered, lines
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


def parts(cells, **changes):
    return sentences_of(records_of(cells, **changes))


def sentences_of(records):
    return next((found.details for found in answered(records).sections if found.key == "difference"), [])


def test_entries_that_differ_in_one_factor_are_compared_with_the_fastest_of_them():
    rows = [
        (row["differs in"], row["backend"], row["compared with"], f"{row['ratio of seconds per epoch']:.2f}", row["verdict"])
        for row in lines(records_of(FOUR), "difference", table=1)
    ]
    assert rows == [
        ("library", "horovod_torch", "ddp@mpi", "1.20", "slower"),
        ("library", "horovod_torch@gloo", "ddp", "1.30", "slower"),
        ("transport", "ddp", "ddp@mpi", "1.10", "slower"),
        ("transport", "horovod_torch@gloo", "horovod_torch", "1.19", "slower"),
    ]


def test_sentences_have_the_averages_of_pairs_that_differ_in_the_same_way():
    interval = "({0} to {0})"
    assert parts(FOUR) == [
        f"{AT} the library's part: Horovod takes 1.25 times ddp's on average over mpi and over gloo {interval.format('1.25')}.",
        f"{AT} the transport's part: gloo takes 1.14 times mpi's on average with ddp and with Horovod {interval.format('1.14')}; "
        f"{difference.REMARK}.",
        # Over the slower transport Horovod loses 19 % and DDP 10 %: 1.9 times as much, though the ratio of the ratios is 1.08.
        f"{AT} library and transport together: horovod_torch@gloo takes 1.19 times horovod_torch's, ddp 1.10 times ddp@mpi's, and the "
        f"ratio of the two is 1.08 {interval.format('1.08')}.",
    ]


def test_an_average_names_the_libraries_that_it_is_of():
    cells = {("single", None): 1.1, ("single_tf", None): 1.0, ("horovod_torch", "mpi"): 1.3, ("horovod_tf", "mpi"): 1.0}
    by_framework, *_ = parts(cells, num_ranks=1)
    assert (
        "the framework's part: PyTorch takes 1.20 times TensorFlow's on average with Horovod over mpi and without a library ("
        in by_framework
    )


def test_the_framework_is_told_by_one_library_and_a_stage_of_zero_is_a_library_of_its_own():
    cells = {("ddp", "gloo"): 1.0, ("horovod_torch", "mpi"): 1.1, ("horovod_tf", "mpi"): 0.55, ("deepspeed_zero@3", "gloo"): 2.0}
    by_framework, by_library, not_run = parts(cells)
    assert by_framework.startswith(f"{AT} the framework's part: horovod_torch takes 2.00 times horovod_tf's")
    assert by_library.startswith(f"{AT} the library's part: deepspeed_zero@3 takes 2.00 times ddp's")
    lacking = "ddp over mpi, deepspeed_zero@3 over mpi, horovod_tf over gloo, horovod_torch over gloo"
    assert not_run == f"cnn, weak scaling, 2 ranks: not run: {lacking}."


def test_without_a_library_single_and_single_tf_tell_of_the_framework():
    (sentence,) = parts({("single", None): 1.0, ("single_tf", None): 0.9}, num_ranks=1)
    assert "the framework's part: single takes 1.11 times single_tf's" in sentence


def test_at_1_rank_nothing_is_said_of_transports():
    (sentence,) = parts(FOUR, num_ranks=1)
    assert sentence.startswith("cnn, weak scaling, 1 rank, seconds per epoch (6 pairs), the library's part: ")


def test_an_average_of_two_differences_has_half_the_width_of_their_ratio():
    varying = tuple(factor * noise for factor, noise in zip([1.43] * 6, (1.0, 1.02, 0.99, 1.0, 0.97, 1.03), strict=True))
    _, by_transport, together = parts(FOUR | {("horovod_torch@gloo", "gloo"): varying})
    bounds = [
        tuple(map(float, re.search(rf"{text} \((\S+) to (\S+)\)", sentence).groups()))
        for text, sentence in ((r"on average with ddp and with Horovod", by_transport), (r"the ratio of the two is 1\.08", together))
    ]
    # An average of two differences has half their variance, a difference of two twice: the logarithm's interval is half as wide.
    average, ratio = (math.log(high / low) for low, high in bounds)
    assert average == pytest.approx(ratio / 2, abs=0.01)


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
    assert parts(cells, **changes) == []


def test_three_repeats_give_numbers_and_no_verdict():
    for sentence in parts(FOUR, num_repeats=3):
        assert "3 pairs" in sentence
        assert sentence.endswith("; a verdict takes 6 repeats.")


def test_a_factor_without_a_shown_difference_is_said_so():
    (sentence,) = parts({("ddp", "gloo"): 1.0, ("ddp@mpi", "mpi"): (1.2, 0.9) * 3})
    assert sentence.startswith(f"{AT} the transport's part: ddp@mpi takes")
    assert "(no difference shown, 0." in sentence
