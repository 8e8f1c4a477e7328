"""Extra-P's model of the same points: a second opinion that knows nothing of networks (Calotoiu et al. 2013, SC13)."""

import warnings
from typing import NamedTuple

MIN_SIZES = 5


class Opinion(NamedTuple):
    """A function of the number of ranks, and its formula in words; `function` is None where there is none, and `formula` says why."""

    function: object
    formula: str


def of(sizes):
    """The Opinion on the step seconds of Sizes."""
    if len(sizes) < MIN_SIZES:
        return Opinion(None, f"Extra-P needs {MIN_SIZES} sizes, and {len(sizes)} were measured")
    # Its libraries warn about each other.
    with warnings.catch_warnings(action="ignore"):
        return _fitted(sizes)


def _fitted(sizes):
    try:
        # Slow to import, and used only here.
        from extrap.entities.callpath import Callpath
        from extrap.entities.coordinate import Coordinate
        from extrap.entities.measurement import Measurement
        from extrap.entities.metric import Metric
        from extrap.modelers.single_parameter.basic import SingleParameterModeler
    except ImportError as problem:
        return Opinion(None, f"Extra-P is not installed here ({problem})")
    step, seconds = Callpath("step"), Metric("seconds")
    points = [Measurement(Coordinate(size.num_ranks), step, seconds, [size.step_seconds]) for size in sizes]
    hypothesis = SingleParameterModeler().create_model(points).hypothesis
    return Opinion(lambda num_ranks: float(hypothesis.function.evaluate(num_ranks)), str(hypothesis.function))
