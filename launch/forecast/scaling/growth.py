"""Extrapolates from a few numbers of ranks: lines that are fitted without negative parts."""

from collections.abc import Callable, Sequence

import numpy as np

from launch.forecast.network import hockney

Line = Callable[[float], float]
# Seconds of computation, by ranks and ranks per node.
Computing = Callable[[int, int], float]
# Ranks, ranks per node, and the measured seconds of computation.
Computation = tuple[int, int, float]


def line(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """Fits a + b x with a and b of at least 0, by least squares on relative errors; a constant where all xs are equal."""
    x_values, y_values = np.asarray(xs, float), np.asarray(ys, float)
    if np.ptp(x_values) == 0 or (y_values <= 0).any():
        mean = float(y_values.mean())
        return lambda x: mean
    start, slope, _ = hockney.line(x_values, y_values)
    return lambda x: start + slope * x


def inverse(points: Sequence[tuple[int, float]]) -> Line:
    """Fits a + b / n to the seconds of n ranks: a part that each rank does and a part that the ranks divide. One point gives b / n."""
    if len(points) == 1:
        ((measured_ranks, seconds),) = points
        return lambda num_ranks: seconds * measured_ranks / num_ranks
    of_inverse = line([1 / num_ranks for num_ranks, _ in points], [seconds for _, seconds in points])
    return lambda num_ranks: of_inverse(1 / num_ranks)


def computing(sizes: Sequence[Computation], scaling: str) -> Computing:
    """Fits the seconds of computation in a step.

    Under weak scaling a rank computes the same everywhere, and the more slowly the more ranks of its node share memory: a + b (r - 1).
    Under strong scaling the ranks divide the samples, but not the part of a step that does not depend on them: a + b / n.
    """
    if scaling == "weak":
        contended = line([per_node - 1 for _, per_node, _ in sizes], [seconds for _, _, seconds in sizes])
        return lambda num_ranks, per_node: contended(min(num_ranks, per_node) - 1)
    divided = inverse([(num_ranks, seconds) for num_ranks, _, seconds in sizes])
    return lambda num_ranks, per_node: divided(num_ranks)


def pipelined(sizes: Sequence[Computation], bubble_of: Callable[[int], float]) -> Computing:
    """Fits the same as `computing` for ranks that compute the stages of one model.

    `bubble_of` gives the part of a step in which that many ranks wait (common/model/pipelining.py). The ranks divide the work.
    """
    work = float(np.mean([seconds * num_ranks * (1 - bubble_of(num_ranks)) for num_ranks, _, seconds in sizes]))
    return lambda num_ranks, per_node: work / num_ranks / (1 - bubble_of(num_ranks))


def epochs_to_target(sizes: Sequence[tuple[float, float]], scaling: str) -> Line:
    """Fits the epochs to the target by data-parallel degree, from the degree and the mean epochs of each size.

    Strong scaling trains the same at every size. Under weak scaling the batch B grows: a model needs E_min (1 + B / B_critical) examples
    (McCandlish et al. 2018, arXiv:1812.06162, equation 2.7), a line in B, and so in the degree.
    """
    if scaling == "strong":
        mean = float(np.mean([epochs for _, epochs in sizes]))
        return lambda degree: mean
    return line([degree for degree, _ in sizes], [epochs for _, epochs in sizes])
