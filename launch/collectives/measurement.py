"""A measurement of a collective, and what follows from it. Pure."""

from typing import NamedTuple

import numpy as np

from common.cost.collectives import COLLECTIVES
from common.errors import UserError
from launch.forecast.network import hockney

# In place where trainings use them so, and every library can: one alpha and beta for each collective, of the same kind in each library.
FITTED_IN_PLACE = ("all_reduce", "broadcast")


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
    def median_seconds(self):
        return float(np.median(self.seconds))

    @property
    def algorithm_bytes_per_second(self):
        """Size over time."""
        return self.size_bytes / self.median_seconds

    @property
    def bus_bytes(self):
        """Size times bus factor: what a rank sends at least."""
        return COLLECTIVES[self.collective].bus_factor(self.num_ranks) * self.size_bytes

    @property
    def bus_bytes_per_second(self):
        """Comparable with the bandwidth of the hardware, at any number of ranks."""
        return self.bus_bytes / self.median_seconds


class Fit(NamedTuple):
    """Alpha and beta of a collective through a library. `regimes` is empty where there are too few sizes for a fit."""

    library: str
    collective: str
    in_place: bool
    num_ranks: int
    regimes: tuple[hockney.Regime, ...]


def fit(measurements):
    """The Fit of the measurements of one collective through one library; None for a barrier, which has one size."""
    first = measurements[0]
    if first.collective == "barrier":
        return None
    in_place = first.collective in FITTED_IN_PLACE
    fitted = [measurement for measurement in measurements if measurement.in_place == in_place]
    try:
        points = [(measurement.size_bytes, seconds) for measurement in fitted for seconds in measurement.seconds]
        regimes = hockney.fit(*zip(*points, strict=True))
    except UserError:
        regimes = ()
    return Fit(first.library, first.collective, in_place, first.num_ranks, regimes)
