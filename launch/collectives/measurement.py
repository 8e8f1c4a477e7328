"""A measurement of a collective, what follows from it, and how its call is timed.

A call is timed as nccl-tests do: all ranks make a loop of calls together, and the time of a call is the mean over ranks.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from common.cost.collectives import COLLECTIVES
from common.errors import UserError
from common.trainer import by_rank
from frameworks.shared.collectives.library import Library
from launch.forecast.network import hockney

# In place where trainings use them so, and every library can: one alpha and beta for each collective, of the same kind in each library.
FITTED_IN_PLACE = ("all_reduce", "broadcast")
# nccl-tests' -w. One call is enough where it takes longer than SLOW_SECONDS.
NUM_WARMUPS = 5
SLOW_SECONDS = 0.1
REPEAT_SECONDS = 0.02
MAX_ITERATIONS = 1000


class Measurement(NamedTuple):
    """Seconds of a collective through a library, in each repeat, and how many elements of a result were wrong, on all ranks together."""

    library: str
    collective: str
    in_place: bool
    num_ranks: int
    size_bytes: int
    num_elements: int
    seconds: list[float]
    num_iterations: int
    num_wrong: int

    @property
    def median_seconds(self) -> float:
        return float(np.median(self.seconds))

    @property
    def algorithm_bytes_per_second(self) -> float:
        """The size over the time."""
        return self.size_bytes / self.median_seconds

    @property
    def bus_bytes(self) -> float:
        """The size times the bus factor: the least that a rank sends."""
        return COLLECTIVES[self.collective].bus_factor(self.num_ranks) * self.size_bytes

    @property
    def bus_bytes_per_second(self) -> float:
        """The bandwidth that is comparable with that of the hardware, at any number of ranks."""
        return self.bus_bytes / self.median_seconds


class Fit(NamedTuple):
    """Alpha and beta of a collective through a library. `regimes` is empty where there are too few sizes for a fit, or no scipy."""

    library: str
    collective: str
    in_place: bool
    num_ranks: int
    regimes: tuple[hockney.Regime, ...]


def fit(measurements: Sequence[Measurement]) -> Fit | None:
    """Fits the measurements of one collective through one library; None for a barrier, which has one size."""
    first = measurements[0]
    if first.collective == "barrier":
        return None
    in_place = first.collective in FITTED_IN_PLACE
    fitted = [measurement for measurement in measurements if measurement.in_place == in_place]
    try:
        points = [(measurement.size_bytes, seconds) for measurement in fitted for seconds in measurement.seconds]
        regimes = hockney.fit(*zip(*points, strict=True))
    except (UserError, ModuleNotFoundError):
        # A site's Python may have no scipy.
        regimes = ()
    return Fit(first.library, first.collective, in_place, first.num_ranks, regimes)


def time_call(library: Library, call: Callable[[], object], num_repeats: int, heartbeat: Callable[[], object]) -> tuple[list[float], int]:
    """Times a call that all ranks make, in each repeat, and returns the number of calls whose mean a repeat is, too.

    That number follows the first calls, and is the same on every rank. `heartbeat()` is called after each loop of calls.
    """
    seconds = _loop(library, call, 1, heartbeat)
    if seconds < SLOW_SECONDS:
        seconds = _loop(library, call, NUM_WARMUPS, heartbeat)
    num_iterations = iterations(seconds)
    return [_loop(library, call, num_iterations, heartbeat) for _ in range(num_repeats)], num_iterations


def iterations(seconds: float) -> int:
    """Returns the number of calls of this length in a repeat."""
    return min(max(math.ceil(REPEAT_SECONDS / seconds), 1), MAX_ITERATIONS) if seconds > 0 else MAX_ITERATIONS


def _loop(library: Library, call: Callable[[], object], num_calls: int, heartbeat: Callable[[], object]) -> float:
    """Times a call in a loop that all ranks begin together: the mean over ranks, which is the same on every rank."""
    library.sum(np.zeros(1))
    begun = time.perf_counter()
    for _ in range(num_calls):
        call()
    library.synchronize()
    seconds = (time.perf_counter() - begun) / num_calls
    heartbeat()
    return float(by_rank(library, seconds).mean())
