"""The machine's speed beside the runs of a matrix, against its median."""

import pytest

from launch.report import noise
from tests.support.made_records import made, noisy, typed


def test_a_speed_is_compared_with_the_median_of_its_matrix_and_size():
    runs = [noisy([10.0, 10.0], repeat=0), noisy([10.0, 8.0], repeat=1), noisy([10.0, 11.0], repeat=2)]
    alone = [noisy([5.0, 5.0], num_ranks=2), noisy([20.0, 20.0], stamp="20260202-000000"), made(repeat=3)]
    percents = {record.repeat: percent for record, percent in noise.farthest(typed(runs))}
    assert percents == {0: 0.0, 1: pytest.approx(-20.0), 2: pytest.approx(10.0)}
    assert [percent for _, percent in noise.farthest(typed(alone))] == [0.0, 0.0]


def test_both_kernels_count():
    runs = [noisy([10.0, 10.0], repeat=0), noisy([10.0, 10.0], repeat=1), noisy([10.0, 10.0], copies=[100.0, 50.0], repeat=2)]
    assert [round(percent) for _, percent in noise.farthest(typed(runs))] == [0, 0, -50]


def test_a_speed_that_is_not_known_is_left_out():
    assert noise.samples(typed([noisy([None, None], copies=[None, None])])) == []
