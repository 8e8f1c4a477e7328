"""The time of a step at any number of ranks, fitted to the sizes that were measured. Pure.

step = data wait + overlap(computation x slowest of n, exchanges) + the rest, which was measured and is not explained, and stays.

Exchanges overlap with the backward pass, one after the other, each no earlier than its gradients are ready. This is the recurrence of
MG-WFBP (Shi, Chu and Li 2019, arXiv:1912.09268, section 3; wait-free backpropagation: Zhang et al. 2017, arXiv:1706.03292):
end_k = max(ready_k, end_(k-1)) + T_k, and step = forward + max(backward, end_K) + optimizer.
"""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from launch.forecast.network import algorithms
from launch.forecast.network.algorithms import Machine
from launch.forecast.scaling.stragglers import Slowest

# A backward pass takes twice the operations of a forward pass, since it computes two products for each of that (common/model/families.py).
FORWARD_SHARE = 1 / 3


class Exchange(NamedTuple):
    """A collective of a step. `ready_share`: the part of the step's computation after which it may start; `size_bytes`: the whole buffer,
    the same at every number of ranks."""

    ready_share: float
    size_bytes: float
    collective: str


def evenly(sizes_bytes, collective):
    """The Exchanges of gradients that become ready at equal distances over the backward pass, the last one at its end."""
    num = len(sizes_bytes)
    return [Exchange(FORWARD_SHARE + (1 - FORWARD_SHARE) * (place + 1) / num, size, collective) for place, size in enumerate(sizes_bytes)]


def overlapped_seconds(compute_seconds: float, exchanges: Sequence[Exchange], algorithm: str, num_ranks: int, machine: Machine) -> float:
    """The time of a step that computes for so long: what the exchanges exceed it by is exposed.

    The optimizer, which waits for the last exchange, is a part of the computation that is not known by itself; it is taken for short.
    """
    end = 0.0
    for exchange in exchanges:
        seconds = algorithms.seconds(exchange.collective, algorithm, exchange.size_bytes, num_ranks, machine)
        end = max(exchange.ready_share * compute_seconds, end) + seconds
    return max(compute_seconds, end)


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
    """A fitted model. `compute(num_ranks, ranks_per_node)` in seconds; `unexplained_seconds`: at one rank, and at more.

    In words: `network`, how it was found, and `notes`, what was assumed.
    """

    machine: Machine
    algorithm: str
    data_wait_seconds: float
    compute: Callable[[int, int], float]
    exchanges: tuple[Exchange, ...]
    slowest: Slowest
    unexplained_seconds: tuple[float, float] = (0.0, 0.0)
    network: str = ""
    notes: tuple[str, ...] = ()

    def parts(self, num_ranks):
        """The Parts of a step. What is unexplained never makes a step shorter than its computation."""
        compute = self.compute(num_ranks, self.machine.ranks_per_node)
        slowest = compute * max(1.0, self.slowest.factor(num_ranks) / self.slowest.factor(1))
        exposed = overlapped_seconds(slowest, self.exchanges, self.algorithm, num_ranks, self.machine) - slowest
        unexplained = max(self.unexplained_seconds[num_ranks > 1], -exposed)
        return Parts(self.data_wait_seconds, compute, slowest - compute, exposed, unexplained)

    def step_seconds(self, num_ranks):
        return self.parts(num_ranks).step


def fit(sizes: Sequence, compute: Callable[[int, int], float], exchanges: tuple[Exchange, ...], machine: Machine, algorithm: str) -> Model:
    """The Model of Sizes, by ascending number of ranks, whose exchanges take an algorithm on a Machine."""
    data_wait = fmean(size.data_wait_seconds for size in sizes)
    plain = Model(machine, algorithm, data_wait, compute, exchanges, sizes[0].slowest)
    alone, together = (
        [size.step_seconds - plain.step_seconds(size.num_ranks) for size in sizes if (size.num_ranks > 1) == several]
        for several in (False, True)
    )
    return plain._replace(unexplained_seconds=(fmean(alone or together), fmean(together or alone)))
