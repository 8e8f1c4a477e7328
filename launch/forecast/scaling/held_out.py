"""How wrong a forecast is: fitted on some sizes, or on some seeds, and tested on the others. Pure."""

import math
from typing import NamedTuple

from launch.report.words import listed


class HeldOut(NamedTuple):
    """A step that was measured and kept out of the fit. `fitted_on`: what the fit had, in words; `doublings`: how far beyond it lies."""

    num_ranks: int
    fitted_on: str
    measured_seconds: float
    predicted_seconds: float
    doublings: float = 1.0

    @property
    def error(self):
        return self.predicted_seconds / self.measured_seconds - 1

    @property
    def log_error_per_doubling(self):
        return abs(math.log(self.predicted_seconds / self.measured_seconds)) / self.doublings


def of_sizes(sizes, fit):
    """The HeldOut of each Size but the smallest. `fit(sizes, held)`: the Model of the others, which may use the network of the one held."""
    tests = []
    for held in sorted(sizes, key=lambda size: size.num_ranks)[1:]:
        fitted_sizes = [size for size in sizes if size is not held]
        largest = max(size.num_ranks for size in fitted_sizes)
        apart = f", and all-reduces at {held.num_ranks}" if largest == 1 else ""
        fitted_on = f"{listed([str(size.num_ranks) for size in fitted_sizes])} rank{'s' if largest > 1 else ''}{apart}"
        predicted = fit(fitted_sizes, held).step_seconds(held.num_ranks)
        beyond = max(1.0, math.log2(held.num_ranks / largest))
        tests.append(HeldOut(held.num_ranks, fitted_on, held.step_seconds, predicted, beyond))
    return tests


def of_seeds(fitted, tested, fit):
    """The HeldOut of the largest size: fitted on Sizes of some seeds, and tested on those of others; empty without two sets."""
    if not (fitted and tested):
        return []
    model, largest = fit(fitted), max(tested, key=lambda size: size.num_ranks)
    return [HeldOut(largest.num_ranks, "other seeds", largest.step_seconds, model.step_seconds(largest.num_ranks))]


def band(step_seconds, num_ranks, largest, tests):
    """(low, high) of a forecast: the largest error that was found, once for each doubling beyond the largest size measured."""
    error = max(test.log_error_per_doubling for test in tests)
    reach = error * max(1.0, math.log2(num_ranks / largest))
    return step_seconds * math.exp(-reach), step_seconds * math.exp(reach)
