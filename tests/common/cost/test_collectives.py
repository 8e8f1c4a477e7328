"""The bytes that a collective sends are those of nccl-tests."""

import pytest

from common.cost.collectives import bus_bytes

# The table at the end of nccl-tests' doc/PERFORMANCE.md, at 4 ranks; all-to-all and send and receive as in alltoall.cu and sendrecv.cu.
FACTORS = {
    "all_reduce": 1.5, "reduce_scatter": 0.75, "all_gather": 0.75, "broadcast": 1.0, "all_to_all": 0.75, "send_recv": 1.0, "barrier": 0.0,
}  # fmt: skip


def test_bus_factors_are_those_of_nccl_tests():
    # A rank contributes a quarter of the size of an all-gather at 4 ranks.
    sent = {name: bus_bytes(name, 2400.0 / (4 if name == "all_gather" else 1), 4) for name in FACTORS}
    assert sent == {name: 2400.0 * factor for name, factor in FACTORS.items()}


@pytest.mark.parametrize("num_ranks", [2, 3, 16])
def test_an_all_reduce_sends_what_its_two_halves_send(num_ranks):
    whole = 2400.0
    halves = bus_bytes("reduce_scatter", whole, num_ranks) + bus_bytes("all_gather", whole / num_ranks, num_ranks)
    assert bus_bytes("all_reduce", whole, num_ranks) == pytest.approx(halves)
