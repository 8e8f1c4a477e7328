"""How what was measured at a few numbers of ranks goes on: lines that are fitted without negative parts. Pure."""

import numpy as np

from launch.forecast.network import hockney


def line(xs, ys):
    """A function a + b x with a and b of at least 0, by least squares on relative errors; a constant where all xs are equal."""
    xs, ys = np.asarray(xs, float), np.asarray(ys, float)
    if np.ptp(xs) == 0 or (ys <= 0).any():
        mean = float(ys.mean())
        return lambda x: mean
    start, slope, _ = hockney.line(xs, ys)
    return lambda x: start + slope * x


def inverse(points):
    """A function a + b / n, from (n, seconds): what n ranks divide, and what each has to do. From one point: b / n."""
    if len(points) == 1:
        ((measured_ranks, seconds),) = points
        return lambda num_ranks: seconds * measured_ranks / num_ranks
    of_inverse = line([1 / num_ranks for num_ranks, _ in points], [seconds for _, seconds in points])
    return lambda num_ranks: of_inverse(1 / num_ranks)


def computing(sizes, scaling):
    """Seconds of computation in a step, as a function of (ranks, ranks per node), from (ranks, ranks per node, seconds) of each size.

    Weak: a rank computes the same everywhere, and the more slowly the more ranks of its node share memory: a + b (r - 1). Strong: the
    samples of a rank are divided by the number of ranks, what a step needs without them is not: a + b / n.
    """
    if scaling == "weak":
        contended = line([per_node - 1 for _, per_node, _ in sizes], [seconds for _, _, seconds in sizes])
        return lambda num_ranks, per_node: contended(min(num_ranks, per_node) - 1)
    divided = inverse([(num_ranks, seconds) for num_ranks, _, seconds in sizes])
    return lambda num_ranks, per_node: divided(num_ranks)


def pipelined(sizes, bubble_of):
    """The same as `computing` for ranks that compute the stages of one model.

    `bubble_of(num_ranks)`: the part of a step in which they wait (common/model/pipelining.py). The rest is divided by the ranks.
    """
    work = float(np.mean([seconds * num_ranks * (1 - bubble_of(num_ranks)) for num_ranks, _, seconds in sizes]))
    return lambda num_ranks, per_node: work / num_ranks / (1 - bubble_of(num_ranks))


def epochs_to_target(sizes, scaling):
    """Epochs to the target, as a function of the data-parallel degree, from (degree, mean epochs) of each size.

    Strong scaling trains the same at every size. Under weak scaling the batch B grows: a model needs E_min (1 + B / B_critical) examples
    (McCandlish et al. 2018, arXiv:1812.06162, equation 2.7), a line in B, and so in the degree.
    """
    if scaling == "strong":
        mean = float(np.mean([epochs for _, epochs in sizes]))
        return lambda degree: mean
    return line(*zip(*sizes, strict=True))
