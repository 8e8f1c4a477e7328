"""The direction of a metric."""

import math

import pytest

from common import metric


@pytest.mark.parametrize(("value", "meets_from_below", "meets_from_above"), [(0.4, False, True), (0.5, True, True), (0.6, True, False)])
def test_a_target_is_met_from_below_or_from_above(value, meets_from_below, meets_from_above):
    assert metric.meets(value, 0.5, lower_is_better=False) == meets_from_below
    assert metric.meets(value, 0.5, lower_is_better=True) == meets_from_above


def test_nan_meets_no_target_and_equal_is_not_better():
    for lower_is_better in (False, True):
        assert not metric.meets(math.nan, 0.5, lower_is_better)
    assert (metric.best([3, 1, 2], lower_is_better=True), metric.best([3, 1, 2], lower_is_better=False)) == (1, 3)
