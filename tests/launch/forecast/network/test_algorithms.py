"""Times of collectives by their algorithms, against the formulas of the papers."""

import pytest

from launch.forecast.network import algorithms
from launch.forecast.network.algorithms import Machine
from launch.forecast.network.hockney import Regime

A, B, S = 1e-5, 1e-9, 1e7
LINK = (Regime(0, A, B, 0.0),)
FLAT = Machine(1, LINK, LINK)


def seconds(algorithm, num_ranks, machine=FLAT, collective="all_reduce"):
    return algorithms.seconds(collective, algorithm, S, num_ranks, machine)


# Of n ranks: the number of alphas, and of betas times the buffer.
@pytest.mark.parametrize(
    ("collective", "algorithm", "num_ranks", "alphas", "betas"),
    [
        *(("all_reduce", algorithm, 1, 0, 0) for algorithm in algorithms.ALL_REDUCES),
        ("all_reduce", "ring", 2, 2, 1),
        ("all_reduce", "ring", 8, 14, 2 * 7 / 8),
        ("all_reduce", "ring", 1000, 1998, 2 * 999 / 1000),
        ("all_reduce", "halving", 2, 2, 1),
        ("all_reduce", "halving", 8, 6, 2 * 7 / 8),
        ("all_reduce", "halving", 1024, 20, 2 * 1023 / 1024),
        # Two ranks beyond 4 give all of their data away, and get all of the result.
        ("all_reduce", "halving", 6, 2 + 4, 2 + 2 * 3 / 4),
        ("reduce_scatter", "ring", 8, 7, 7 / 8),
        ("all_gather", "ring", 8, 7, 7 / 8),
        ("all_gather", "halving", 8, 3, 7 / 8),
        ("broadcast", "ring", 8, 3, 3),
        ("all_to_all", "ring", 8, 7, 7 / 8),
        # Of shares of S/2 in segments of S/4: one waits for another one. Between more ranks no word is behind data.
        *(("gloo_all_gather", algorithm, 2, 3, 3 / 4) for algorithm in ("ring", "halving")),
        *(("gloo_all_gather", algorithm, 3, 2, 2 / 3) for algorithm in ("ring", "halving")),
        ("gloo_all_gather", "ring", 8, 7, 7 / 8),
    ],
)
def test_a_collective_takes_the_alphas_and_betas_of_its_formula(collective, algorithm, num_ranks, alphas, betas):
    assert seconds(algorithm, num_ranks, collective=collective) == pytest.approx(alphas * A + betas * S * B)


def test_a_collective_between_nodes_takes_their_slower_link():
    slow = (Regime(0, 100 * A, 100 * B, 0.0),)
    machine = Machine(4, LINK, slow)
    assert seconds("ring", 4, machine) == seconds("ring", 4)
    assert seconds("ring", 2, machine, "gloo_all_gather") == seconds("ring", 2, collective="gloo_all_gather")
    # A ring has one rank of each node that sends to the next one; every round waits for it.
    assert seconds("ring", 8, machine) == pytest.approx(14 * 100 * (A + S / 8 * B))
    # In halving the four ranks of a node send to the other one at the same time, and share its link, in one round of three.
    inside = 4 * A + 2 * (1 / 4 + 1 / 8) * S * B
    assert seconds("halving", 8, machine) == pytest.approx(inside + 2 * 100 * (A + 4 * S / 2 * B))
