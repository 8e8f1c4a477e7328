"""Ratios judged against a committed set: the quotient's interval, and the factor by which a ratio has changed."""

import pytest

from launch.report import entries
from launch.report.judgement import judged, quotient
from launch.report.statistics import Ratio
from tests.launch.report.questions.test_travel import FACTORS, matrix
from tests.support.made_records import typed


@pytest.mark.parametrize(
    ("above", "below", "value", "bounds"),
    [
        (Ratio(1.2, 1.1, 1.3, 6, 6, True), Ratio(1.2, 1.2, 1.2, 12, 12, True), 1.0, (1.1 / 1.2, 1.3 / 1.2)),
        (Ratio(1.2, 1.2, 1.2, 6, 6, True), Ratio(1.2, 1.1, 1.3, 12, 12, True), 1.0, (1.2 / 1.3, 1.2 / 1.1)),
        (Ratio(2.0, 1.0, 4.0, 6, 6, True), Ratio(1.0, 0.5, 2.0, 12, 12, True), 2.0, (2 * 2 ** -(2**0.5), 2 * 2 ** (2**0.5))),
    ],
)
def test_the_bounds_of_a_quotient_are_as_far_as_both_sides_bounds_together(above, below, value, bounds):
    divided = quotient(above, below)
    assert (divided.value, divided.low, divided.high) == pytest.approx((value, *bounds))
    assert (divided.num_above, divided.num_below, divided.paired) == (6, 12, False)


def test_a_quotient_without_an_interval_on_one_side_has_none():
    divided = quotient(Ratio(1.2, None, None, 2, 2, True), Ratio(1.2, 1.1, 1.3, 6, 6, True))
    assert (divided.low, divided.high, divided.verdict) == (None, None, None)


def entries_of(*arguments, **options):
    (comparison,) = entries.comparisons(typed(matrix(*arguments, **options)))
    return list(comparison.entries)


@pytest.mark.parametrize(("level", "factor"), [("TensorFlow", "framework"), ("ddp", "library"), ("gloo", "transport")])
def test_the_factor_that_has_changed_is_the_part_that_explains_the_quotient(level, factor):
    changed = {**FACTORS, level: FACTORS[level] * 1.5}
    judgements = {ratio.entry.backend: ratio for ratio in judged(entries_of(changed), entries_of(FACTORS))}
    assert set(judgements) == {"ddp@mpi", "horovod_torch", "horovod_torch@gloo", "horovod_tf", "horovod_keras", "deepspeed_zero"}
    assert all(ratio.remainder == pytest.approx(1, rel=0.01) for ratio in judgements.values())
    moved = [ratio for ratio in judgements.values() if abs(ratio.quotient.value - 1) > 0.2]
    assert moved
    assert {ratio.largest_part for ratio in moved} == {factor}
    assert all(ratio.quotient.verdict for ratio in moved)
    assert all(ratio.parts[factor] == pytest.approx(ratio.quotient.value, rel=0.01) for ratio in moved)


def test_only_what_both_sides_have_is_judged():
    assert [ratio.entry.backend for ratio in judged(entries_of(FACTORS, backends=("ddp", "ddp@mpi")), entries_of(FACTORS))] == ["ddp@mpi"]
    assert judged(entries_of(FACTORS, backends=("ddp",)), entries_of(FACTORS)) == []
    assert judged([], entries_of(FACTORS)) == []
