"""The machine's speed beside the runs of a matrix, against its median."""

import pytest

from launch.report import noise
from tests.support.made_records import made, noisy, typed


@pytest.mark.parametrize(
    ("records", "percents"),
    [
        ([noisy([10.0, 10.0]), noisy([10.0, 8.0], repeat=1), noisy([10.0, 11.0], repeat=2)], [0, -20, 10]),
        # Both kernels count.
        ([noisy([10.0, 10.0]), noisy([10.0, 10.0], repeat=1), noisy([10.0, 10.0], copies=[100.0, 50.0], repeat=2)], [0, 0, -50]),
        # Of another size, of another matrix, not measured, and not known.
        ([noisy([5.0, 5.0], num_ranks=2), noisy([20.0, 20.0], stamp="20260202-000000"), made(), noisy([None] * 2, [None] * 2)], [0, 0]),
    ],
)
def test_a_speed_is_compared_with_the_median_of_its_matrix_and_size(records, percents):
    assert [percent for _, percent in noise.farthest(typed(records))] == pytest.approx(percents)
