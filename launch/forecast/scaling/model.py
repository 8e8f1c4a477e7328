"""The time of a step at any number of ranks, fitted to the sizes that were measured. Pure.

step = data wait + overlap(computation x slowest of n, exchanges) + the rest, which was measured and is not explained, and stays.
"""

from collections.abc import Callable
from statistics import fmean
from typing import NamedTuple

from launch.forecast.network import algorithms
from launch.forecast.network.algorithms import Machine
from launch.forecast.scaling import overlap
from launch.forecast.scaling.overlap import Exchange
from launch.forecast.scaling.stragglers import Slowest


class Parts(NamedTuple):
    """The seconds of a step: they add up to it."""

    data_wait: float
    compute: float
    stragglers: float
    exposed: float
    unexplained: float

    @property
    def step(self):
        return sum(self)


class Model(NamedTuple):
    """A fitted model. `compute(num_ranks, ranks_per_node)` in seconds; `unexplained_seconds`: at one rank, and at more."""

    machine: Machine
    algorithms: tuple[str, ...]
    data_wait_seconds: float
    compute: Callable[[int, int], float]
    exchanges: tuple[Exchange, ...]
    slowest: Slowest
    unexplained_seconds: tuple[float, float] = (0.0, 0.0)

    def parts(self, num_ranks):
        """The Parts of a step. What is unexplained never makes a step shorter than its computation."""
        compute = self.compute(num_ranks, self.machine.ranks_per_node)
        slowest = compute * max(1.0, self.slowest.factor(num_ranks) / self.slowest.factor(1))
        exchange_seconds = [
            algorithms.seconds(exchange.collective, self.algorithms, exchange.size_bytes, num_ranks, self.machine)
            for exchange in self.exchanges
        ]
        exposed = overlap.step_seconds(slowest, self.exchanges, exchange_seconds) - slowest
        unexplained = max(self.unexplained_seconds[num_ranks > 1], -exposed)
        return Parts(self.data_wait_seconds, compute, slowest - compute, exposed, unexplained)

    def step_seconds(self, num_ranks):
        return self.parts(num_ranks).step


def fit(sizes, compute, exchanges, machine, names):
    """The Model of Sizes, by ascending number of ranks, whose exchanges take algorithms of these names on a Machine."""
    data_wait = fmean(size.data_wait_seconds for size in sizes)
    plain = Model(machine, names, data_wait, compute, exchanges, sizes[0].slowest)
    alone, together = (
        [size.step_seconds - plain.step_seconds(size.num_ranks) for size in sizes if (size.num_ranks > 1) == several]
        for several in (False, True)
    )
    return plain._replace(unexplained_seconds=(fmean(alone or together), fmean(together or alone)))
