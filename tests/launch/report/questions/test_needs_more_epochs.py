"""The test that no backend needs more epochs."""

import itertools

import numpy as np
import pytest

from launch.report.entries import Entry
from launch.report.questions import first
from launch.report.questions.first import MoreEpochs
from tests.support.made_records import made, not_reached, typed


def test_a_run_that_missed_the_target_needs_more_than_all_its_epochs():
    compared = [
        Entry("ddp", 1, typed([made(), not_reached(repeat=1)])),
        Entry("single", 1, typed([made(backend="single", parameter_digests=[])])),
    ]
    assert first.blocks_of(compared) == [{("ddp",): 2, ("single",): 2}, {("ddp",): 3}]


def test_backends_with_bitwise_the_same_parameters_are_one_training():
    digests = {"ddp": "c", "single": "c", "horovod_tf": "d"}
    compared = [Entry(name, 1, typed([made(backend=name, parameter_digests=["a" * 64, digest * 64])])) for name, digest in digests.items()]
    assert first.blocks_of(compared) == [{("ddp", "single"): 2, ("horovod_tf",): 2}]


def test_the_probability_of_a_sum_by_enumeration():
    choices = [[3, 4, 5], [2, 2, 4], [7, 8, 9]]
    sums = [sum(chosen) for chosen in itertools.product(*choices)]
    for total in range(11, 20):
        assert first.at_least(total, choices) == pytest.approx(np.mean([reached >= total for reached in sums]))


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        (
            [{"a": 3, "b": 3, "c": 4}, {"a": 4, "b": 4, "c": 6}, {"a": 3, "b": 4, "c": 5}, {"a": 5, "b": 5, "c": 6}],
            [MoreEpochs("c", 5.25, 3.875, pytest.approx(1 / 81))],
        ),
        ([], []),
        ([{"a": 3}, {"a": 9}], []),
        # Two seeds cannot show it: the backend is the slowest in both by chance with probability 1/9.
        ([{"a": 3, "b": 3, "c": 9}, {"a": 4, "b": 4, "c": 9}], []),
        ([{"a": 3, "b": 4}, {"a": 4, "b": 3}, {"a": 3, "b": 3}, {"a": 5, "b": 4}], []),
    ],
)
def test_a_backend_that_needs_more_epochs_is_found_and_none_without_evidence(blocks, expected):
    assert first.needing_more([{(backend,): number for backend, number in block.items()} for block in blocks]) == expected


def test_few_equal_backends_are_named():
    rng = np.random.default_rng(5)
    drawn = rng.integers(3, 6, (400, 6, 5))
    # Some train bitwise the same, as those of one framework do.
    for groups in ("a b c d e", "abc d e", "abcd e"):
        blocks_of = [[dict(zip(map(tuple, groups.split()), block.tolist(), strict=False)) for block in blocks] for blocks in drawn]
        # Counted one by one, those of the last two would have 0.053 and 0.058.
        assert np.mean([bool(first.needing_more(blocks)) for blocks in blocks_of]) <= first.ERROR_RATE
