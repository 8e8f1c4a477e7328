"""The definitions of collectives are those of nccl-tests."""

import pytest

from common.cost.collectives import COLLECTIVES, bus_bytes, num_elements

# The table at the end of nccl-tests' doc/PERFORMANCE.md, at 4 ranks; all-to-all and send and receive as in alltoall.cu and sendrecv.cu.
FACTORS = {
    "all_reduce": 1.5, "reduce_scatter": 0.75, "all_gather": 0.75, "broadcast": 1.0, "all_to_all": 0.75, "send_recv": 1.0, "barrier": 0.0,
}  # fmt: skip


def test_bus_factors_are_those_of_nccl_tests():
    assert {name: collective.bus_factor(4) for name, collective in COLLECTIVES.items()} == FACTORS


@pytest.mark.parametrize("num_ranks", [2, 3, 16])
def test_an_all_reduce_sends_what_its_two_halves_send_and_what_is_no_collective_all_that_it_contributes(num_ranks):
    whole = 2400.0
    halves = bus_bytes("reduce_scatter", whole, num_ranks) + bus_bytes("all_gather", whole / num_ranks, num_ranks)
    assert bus_bytes("all_reduce", whole, num_ranks) == pytest.approx(halves)
    assert bus_bytes("receive", whole, num_ranks) == whole


@pytest.mark.parametrize(
    ("name", "size_bytes", "num_ranks", "expected"),
    [
        ("all_reduce", 8, 16, 2),
        ("broadcast", 11, 2, 2),
        ("all_gather", 8, 2, 2),
        ("all_gather", 8, 4, 4),
        ("reduce_scatter", 64, 3, 15),
        ("all_to_all", 4, 2, 2),
        ("send_recv", 4, 2, 1),
    ],
)
def test_the_parts_of_a_collective_are_equal_and_have_an_element_each(name, size_bytes, num_ranks, expected):
    assert num_elements(name, size_bytes, num_ranks) == expected
