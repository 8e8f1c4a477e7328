"""Times of collectives by their algorithms, against the formulas of the papers."""

import math

import pytest

from launch.forecast.network import algorithms
from launch.forecast.network.algorithms import Machine
from launch.forecast.network.hockney import Regime

A, B, S = 1e-5, 1e-9, 1e7
LINK = (Regime(0, A, B, 0.0),)
FLAT = Machine(1, LINK, LINK)


def seconds(algorithm, num_ranks, machine=FLAT, collective="all_reduce"):
    return algorithms.seconds(collective, (algorithm,), S, num_ranks, machine)


# n ranks: (number of alphas, number of betas times the buffer).
@pytest.mark.parametrize(
    ("algorithm", "num_ranks", "alphas", "betas"),
    [
        ("ring", 2, 2, 1),
        ("ring", 8, 14, 2 * 7 / 8),
        ("ring", 1000, 1998, 2 * 999 / 1000),
        ("halving", 2, 2, 1),
        ("halving", 8, 6, 2 * 7 / 8),
        ("halving", 1024, 20, 2 * 1023 / 1024),
        # Two ranks beyond 4 give all of their data away, and get all of the result.
        ("halving", 6, 2 + 4, 2 + 2 * 3 / 4),
        ("doubling", 8, 3, 3),
        ("doubling", 6, 2 + 2, 2 + 2),
        ("tree", 8, 6, 6),
        ("tree", 9, 8, 8),
        ("hierarchical", 8, 6, 2 * 7 / 8),
    ],
)
def test_an_all_reduce_takes_the_alphas_and_betas_of_its_formula(algorithm, num_ranks, alphas, betas):
    assert seconds(algorithm, num_ranks) == pytest.approx(alphas * A + betas * S * B)


@pytest.mark.parametrize("algorithm", algorithms.ALL_REDUCES)
def test_one_rank_exchanges_nothing(algorithm):
    assert seconds(algorithm, 1) == 0


@pytest.mark.parametrize(
    ("collective", "algorithm", "alphas", "betas"),
    [
        ("reduce_scatter", "ring", 7, 7 / 8),
        ("all_gather", "ring", 7, 7 / 8),
        ("all_gather", "halving", 3, 7 / 8),
        ("broadcast", "ring", 3, 3),
        ("all_to_all", "ring", 7, 7 / 8),
    ],
)
def test_other_collectives(collective, algorithm, alphas, betas):
    assert seconds(algorithm, 8, collective=collective) == pytest.approx(alphas * A + betas * S * B)


# Of shares of S/2 in segments of S/4: one waits for another one. Between more ranks no word is behind data.
@pytest.mark.parametrize(("num_ranks", "alphas", "betas"), [(2, 3, 3 / 4), (3, 2, 2 / 3), (8, 7, 7 / 8)])
def test_the_second_rank_of_two_sends_before_it_says_that_it_can_receive(num_ranks, alphas, betas):
    for algorithm in ("ring", "halving"):
        takes = seconds(algorithm, num_ranks, collective="gloo_all_gather")
        assert takes == pytest.approx(alphas * A + betas * S * B)
    slow = (Regime(0, 100 * A, 100 * B, 0.0),)
    assert seconds("ring", 2, Machine(2, LINK, slow), "gloo_all_gather") == seconds("ring", 2, collective="gloo_all_gather")


def test_a_collective_between_nodes_takes_their_slower_link():
    slow = (Regime(0, 100 * A, 100 * B, 0.0),)
    machine = Machine(4, LINK, slow)
    assert seconds("ring", 4, machine) == seconds("ring", 4)
    # A ring has one rank of each node that sends to the next one; every round waits for it.
    assert seconds("ring", 8, machine) == pytest.approx(14 * 100 * (A + S / 8 * B))
    # In halving the four ranks of a node send to the other one at the same time, and share its link, in one round of three.
    inside = 4 * A + 2 * (1 / 4 + 1 / 8) * S * B
    assert seconds("halving", 8, machine) == pytest.approx(inside + 2 * 100 * (A + 4 * S / 2 * B))
    # Between nodes a hierarchical one sends the buffer once in each direction, as a ring over nodes would.
    inside = 6 * (A + S / 4 * B)
    assert seconds("hierarchical", 8, machine) == pytest.approx(inside + 2 * 100 * (A + 4 * S / 4 / 2 * B))
    assert seconds("hierarchical", 8, machine) < seconds("ring", 8, machine) < seconds("tree", 8, machine)


def test_the_fastest_of_several_algorithms_counts():
    names = ("ring", "tree")
    small, large = (algorithms.seconds("all_reduce", names, size, 64, FLAT) for size in (8, 1e9))
    assert small == pytest.approx(2 * math.log2(64) * (A + 8 * B))
    assert large == pytest.approx(126 * A + 2 * 63 / 64 * 1e9 * B)
