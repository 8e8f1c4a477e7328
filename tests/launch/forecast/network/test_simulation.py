"""The closed formulas against the simulation of every message: within 5 %, or known not to be."""

import numpy as np
import pytest

from launch.forecast.network import algorithms
from launch.forecast.network.algorithms import Machine
from launch.forecast.network.hockney import Regime
from launch.forecast.scaling.model import Exchange, evenly, overlapped_seconds
from launch.forecast.scaling.stragglers import Slowest
from tests.support import message_simulation as simulation

INSIDE = (Regime(0, 2e-6, 1e-10, 0.0),)
BETWEEN = (Regime(0, 2e-5, 1e-9, 0.0),)
ONE_EACH, FOUR_EACH = (Machine(num, INSIDE, BETWEEN) for num in (1, 4))
SIZE = 4.8e6
TOLERANCE = 0.05
BUCKETS = {
    "one bucket at the end": [Exchange(1.0, SIZE, "all_reduce")],
    "four buckets": evenly([SIZE / 4] * 4, "all_reduce"),
}


@pytest.mark.parametrize("buckets", BUCKETS)
@pytest.mark.parametrize("machine", [ONE_EACH, FOUR_EACH], ids=["a rank a node", "four ranks a node"])
@pytest.mark.parametrize("num_ranks", [2, 8, 64, pytest.param(256, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("algorithm", algorithms.ALL_REDUCES)
def test_equal_ranks_take_what_the_formula_says(algorithm, num_ranks, machine, buckets):
    compute = 0.01
    simulated = simulation.step_seconds([compute] * num_ranks, BUCKETS[buckets], algorithm, machine)
    by_formula = overlapped_seconds(compute, BUCKETS[buckets], algorithm, num_ranks, machine)
    assert by_formula == pytest.approx(simulated, rel=TOLERANCE)


def test_a_thousand_ranks():
    test_equal_ranks_take_what_the_formula_says("halving", 1024, FOUR_EACH, "one bucket at the end")


# Ranks that differ: those that are ready first have a link that they share to themselves, which the formulas do not know.
@pytest.mark.matrix
@pytest.mark.parametrize(
    ("algorithm", "machine", "num_buckets", "within"),
    [
        ("ring", ONE_EACH, 1, TOLERANCE),
        ("halving", ONE_EACH, 1, TOLERANCE),
        ("ring", FOUR_EACH, 4, TOLERANCE),
        ("halving", FOUR_EACH, 1, 0.10),
    ],
)
def test_a_step_waits_for_the_slowest_rank(algorithm, machine, num_buckets, within):
    random, num_ranks, compute = np.random.default_rng(5), 64, 0.01
    draws = np.sort(1 + 0.1 * random.exponential(size=2000))
    buckets = evenly([SIZE / num_buckets] * num_buckets, "all_reduce")
    drawn = [compute * random.choice(draws, num_ranks) for _ in range(10 if num_buckets > 1 else 40)]
    simulated = np.mean([simulation.step_seconds(compute_seconds, buckets, algorithm, machine) for compute_seconds in drawn])
    by_formula = overlapped_seconds(compute * Slowest(draws).factor(num_ranks), buckets, algorithm, num_ranks, machine)
    assert by_formula == pytest.approx(simulated, rel=within)
    # What is not within 5 % errs on the slow side.
    assert by_formula > simulated * (1 - TOLERANCE)


def test_what_one_rank_does_by_hand():
    machine = Machine(1, INSIDE, (Regime(0, 1.0, 1.0, 0.0),))
    # Two ranks, one of which is ready 3 s later: a ring of two rounds, each 1 s and 5 bytes.
    assert simulation.step_seconds([1.0, 4.0], [Exchange(1.0, 10, "all_reduce")], "ring", machine) == pytest.approx(4 + 2 * (1 + 5))
    assert simulation.step_seconds([1.0, 4.0], [], "ring", machine) == 4
    assert simulation.step_seconds([3.0], [Exchange(1.0, 10, "all_reduce")], "ring", machine) == 3
