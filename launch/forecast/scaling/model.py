"""The time of a step at any number of ranks, fitted to the sizes that were measured.

step = data wait + overlap(computation x slowest of n, exchanges) + unexplained, a measured rest that is the same at every size.

Exchanges overlap with the backward pass, one after the other, each no earlier than its gradients are ready. This is the recurrence of
MG-WFBP (Shi, Chu and Li 2019, arXiv:1912.09268, section 3; wait-free backpropagation: Zhang et al. 2017, arXiv:1706.03292):
end_k = max(ready_k, end_(k-1)) + T_k, and step = forward + max(backward, end_K) + optimizer.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from launch.forecast.network import algorithms
from launch.forecast.network.algorithms import Machine
from launch.forecast.scaling.growth import Computing
from launch.forecast.scaling.stragglers import Slowest

if TYPE_CHECKING:
    from launch.forecast.scaling.measured import Size

# A backward pass takes twice the operations of a forward pass, since it computes two products for each of that (common/model/families.py).
FORWARD_SHARE = 1 / 3


class Exchange(NamedTuple):
    """A collective of a step, which may start after `ready_share` of the step's computation.

    `size_bytes` is the whole buffer, the same at every number of ranks.
    """

    ready_share: float
    size_bytes: float
    collective: str


def evenly(sizes_bytes: Sequence[float], collective: str) -> list[Exchange]:
    """Returns the exchanges of gradients that become ready at equal distances over the backward pass, the last one at its end."""
    num = len(sizes_bytes)
    return [Exchange(FORWARD_SHARE + (1 - FORWARD_SHARE) * (place + 1) / num, size, collective) for place, size in enumerate(sizes_bytes)]


def overlapped_seconds(compute_seconds: float, exchanges: Sequence[Exchange], algorithm: str, num_ranks: int, machine: Machine) -> float:
    """Returns the time of a step that computes for so long; what exceeds the computation is exposed.

    The optimizer, which waits for the last exchange, is a part of the computation that is not measured by itself and is taken as short.
    """
    end = 0.0
    for exchange in exchanges:
        seconds = algorithms.seconds(exchange.collective, algorithm, exchange.size_bytes, num_ranks, machine)
        end = max(exchange.ready_share * compute_seconds, end) + seconds
    return max(compute_seconds, end)


class Parts(NamedTuple):
    """The seconds of a step's parts, which add up to it."""

    data_wait: float
    compute: float
    stragglers: float
    exposed: float
    unexplained: float

    @property
    def step(self) -> float:
        return sum(self)


class Model(NamedTuple):
    """A fitted model. `unexplained_seconds` are at one rank, and at more.

    In words, `network` describes how it was measured, and `notes` what was assumed.
    """

    machine: Machine
    algorithm: str
    data_wait_seconds: float
    compute: Computing
    exchanges: tuple[Exchange, ...]
    slowest: Slowest
    unexplained_seconds: tuple[float, float] = (0.0, 0.0)
    network: str = ""
    notes: tuple[str, ...] = ()

    def parts(self, num_ranks: int) -> Parts:
        """Predicts the parts of a step. What is unexplained never makes a step shorter than its computation."""
        compute = self.compute(num_ranks, self.machine.ranks_per_node)
        slowest = compute * max(1.0, self.slowest.factor(num_ranks) / self.slowest.factor(1))
        exposed = overlapped_seconds(slowest, self.exchanges, self.algorithm, num_ranks, self.machine) - slowest
        unexplained = max(self.unexplained_seconds[num_ranks > 1], -exposed)
        return Parts(self.data_wait_seconds, compute, slowest - compute, exposed, unexplained)

    def predicted_step_seconds(self, num_ranks: int) -> float:
        return self.parts(num_ranks).step


def fit(sizes: Sequence["Size"], compute: Computing, exchanges: tuple[Exchange, ...], machine: Machine, algorithm: str) -> Model:
    """Fits a model to sizes, by ascending number of ranks, whose exchanges take an algorithm on a machine."""
    data_wait = fmean(size.data_wait_seconds for size in sizes)
    plain = Model(machine, algorithm, data_wait, compute, exchanges, sizes[0].slowest)
    alone, together = (
        [size.timed_step_seconds - plain.predicted_step_seconds(size.num_ranks) for size in sizes if (size.num_ranks > 1) == several]
        for several in (False, True)
    )
    return plain._replace(unexplained_seconds=(fmean(alone or together), fmean(together or alone)))
