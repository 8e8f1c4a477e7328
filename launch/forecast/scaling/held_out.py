"""How wrong a forecast is: fitted on some sizes, or on some seeds, and tested on the others."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from launch.forecast.scaling.measured import Size
from launch.forecast.scaling.model import Model
from launch.report.words import listed

# Fits a model to sizes; from a size that is held out it may use the network.
Fit = Callable[[Sequence[Size], Size | None], Model]


class HeldOut(NamedTuple):
    """A measured step that was kept out of the fit. The fit lies `doublings` of the ranks below it."""

    num_ranks: int
    fitted_on: str
    measured_seconds: float
    predicted_seconds: float
    doublings: float = 1.0

    @property
    def error(self) -> float:
        return self.predicted_seconds / self.measured_seconds - 1

    @property
    def log_error_per_doubling(self) -> float:
        return abs(math.log(self.predicted_seconds / self.measured_seconds)) / self.doublings


def of_sizes(sizes: Sequence[Size], fit: Fit) -> list[HeldOut]:
    """Holds out each size but the smallest. The model of the others may use the network of the size that is held out."""
    tests = []
    for held in sorted(sizes, key=lambda size: size.num_ranks)[1:]:
        fitted_sizes = [size for size in sizes if size is not held]
        largest = max(size.num_ranks for size in fitted_sizes)
        apart = f", and all-reduces at {held.num_ranks}" if largest == 1 else ""
        fitted_on = f"{listed([str(size.num_ranks) for size in fitted_sizes])} rank{'s' if largest > 1 else ''}{apart}"
        predicted = fit(fitted_sizes, held).predicted_step_seconds(held.num_ranks)
        doublings = max(1.0, math.log2(held.num_ranks / largest))
        tests.append(HeldOut(held.num_ranks, fitted_on, held.timed_step_seconds, predicted, doublings))
    return tests


def of_seeds(fitted: Sequence[Size], tested: Sequence[Size], fit: Fit) -> list[HeldOut]:
    """Fits sizes of some seeds, and tests the model on the largest size of other seeds; empty without two sets."""
    if not (fitted and tested):
        return []
    model, largest = fit(fitted, None), max(tested, key=lambda size: size.num_ranks)
    predicted = model.predicted_step_seconds(largest.num_ranks)
    return [HeldOut(largest.num_ranks, "other seeds", largest.timed_step_seconds, predicted)]


def band(predicted_step_seconds: float, num_ranks: int, largest: int, tests: Iterable[HeldOut]) -> tuple[float, float]:
    """Returns the ends of a forecast's band: the largest held-out error, once for each doubling beyond the largest size measured."""
    error = max(test.log_error_per_doubling for test in tests)
    reach = error * max(1.0, math.log2(num_ranks / largest))
    return predicted_step_seconds * math.exp(-reach), predicted_step_seconds * math.exp(reach)
