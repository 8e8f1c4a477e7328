"""What the ranks should receive is what the collectives make of what they contribute, and every wrong element is counted."""

import numpy as np
import pytest

from common.cost.collectives import COLLECTIVES
from launch.collectives import data

NAMES = [name for name in COLLECTIVES if name != "barrier"]
# What rank r of n receives of the contributions of all.
MEANT = {
    "all_reduce": lambda arrays, r, n: sum(arrays),
    "all_gather": lambda arrays, r, n: np.concatenate(arrays),
    "reduce_scatter": lambda arrays, r, n: np.split(sum(arrays), n)[r],
    "broadcast": lambda arrays, r, n: arrays[0],
    "all_to_all": lambda arrays, r, n: np.concatenate([np.split(array, n)[r] for array in arrays]),
    "send_recv": lambda arrays, r, n: arrays[r - 1],
}


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("num_elements", [6, 6 * 8191, 600])
@pytest.mark.parametrize("name", NAMES)
def test_the_result_of_a_collective_is_expected(name, num_elements, num_ranks):
    arrays = [data.contributed(name, rank, num_ranks, num_elements) for rank in range(num_ranks)]
    for rank in range(num_ranks):
        received = MEANT[name](arrays, rank, num_ranks)
        parts = data.expected(name, rank, num_ranks, num_elements)
        assert len(received) == len(data.room(name, num_ranks, num_elements))
        assert data.num_wrong(received, parts) == 0
        assert data.num_wrong(data.room(name, num_ranks, num_elements), parts) == len(received)
        wrong = received.copy()
        wrong[[0, len(wrong) // 2, -1]] += 1
        assert data.num_wrong(wrong, parts) == len({0, len(wrong) // 2, len(wrong) - 1})


@pytest.mark.parametrize(("length", "wrong"), [(0, 6), (5, 1), (6, 0), (8, 2)])
def test_missing_elements_are_wrong_and_so_are_too_many(length, wrong):
    received = np.resize(data.pattern_of_sum(2), 8)[:length]
    assert data.num_wrong(received, data.expected("all_reduce", 0, 2, 6)) == wrong


def test_parts_in_the_wrong_order_are_wrong():
    arrays = [data.contributed("all_gather", rank, 2, 4096) for rank in range(2)]
    assert data.num_wrong(np.concatenate(arrays[::-1]), data.expected("all_gather", 0, 2, 4096)) > 4000


def test_sums_are_exact():
    assert data.pattern_of_sum(1000).max() < 2**24
