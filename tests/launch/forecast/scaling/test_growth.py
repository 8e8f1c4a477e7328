"""What goes on beyond the sizes that were measured: lines without negative parts."""

import pytest

from launch.forecast.scaling import growth


@pytest.mark.parametrize(
    ("xs", "ys", "x", "y"),
    [([1, 2], [3, 5], 10, 21), ([1, 1], [3, 5], 10, 4), ([1, 2], [5, 3], 10, 60 / 17), ([0, 1], [0.0, 2.0], 9, 1.0)],
)
def test_a_line_never_falls(xs, ys, x, y):
    assert growth.line(xs, ys)(x) == pytest.approx(y, abs=0.05)


def test_what_ranks_divide_and_what_each_has_to_do():
    assert growth.inverse([(2, 6.0)])(4) == 3
    inverse = growth.inverse([(1, 10.0), (2, 6.0)])
    assert [inverse(1), inverse(2), inverse(4), inverse(10**9)] == pytest.approx([10, 6, 4, 2])


def test_under_weak_scaling_ranks_of_a_node_slow_each_other_down_and_nodes_do_not():
    compute = growth.computing([(1, 1, 10.0), (2, 2, 11.0), (4, 4, 13.0)], "weak")
    assert [compute(8, 8), compute(1000, 4), compute(3, 8)] == pytest.approx([17, 13, 12], rel=1e-6)


def test_a_pipeline_divides_its_work_and_waits_in_its_bubble():
    # Of GPipe with 4 micro-batches: p - 1 of m + p - 1.
    compute = growth.pipelined([(2, 2, 10.0)], lambda num_ranks: (num_ranks - 1) / (4 + num_ranks - 1))
    assert compute(2, 1) == pytest.approx(10)
    assert compute(4, 1) == pytest.approx(10 * 2 * (4 / 5) / 4 / (4 / 7))


def test_epochs_grow_with_the_batch_under_weak_scaling_and_stay_under_strong():
    # E_min = 2 and B_critical = 4 batches of a rank.
    sizes = [(1, 2.5), (2, 3.0), (8, 6.0)]
    assert growth.epochs_to_target(sizes, "weak")(16) == pytest.approx(10)
    assert growth.epochs_to_target(sizes, "strong")(16) == pytest.approx(11.5 / 3)
