"""Hockney's model of a message, seconds = alpha + beta n, fitted by regimes: libraries switch their algorithm between sizes.

Hockney, The communication challenge for MPP: Intel Paragon and Meiko CS-2 (Parallel Computing 20, 1994).
"""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from common.errors import UserError

MAX_REGIMES = 3
# A line through two points has no residual.
MIN_SIZES = 3
# The least ratio of the largest to the smallest size of a regime, where there are several: closer sizes do not separate alpha from beta.
MIN_SPAN = 8
# Residuals below this, or below what repeats show of noise, are no reason for one more regime.
RESIDUAL_FLOOR = 0.01
# Standard error of a median over that of a mean, for normal values.
OF_MEDIAN = (np.pi / 2) ** 0.5
# By how much one more regime must lower the criterion: "very strong" evidence (Kass and Raftery, JASA 90, 1995, section 3.2). With less,
# a switch point, which may lie anywhere, follows noise.
EVIDENCE = 10.0


class Regime(NamedTuple):
    """A range of sizes with one alpha and one beta, from `from_bytes`, the smallest size measured in it, up to the next regime.

    `alpha_seconds` is the latency, 1 / `beta_seconds_per_byte` the bandwidth. `relative_residual` is the root mean square of the
    differences between fit and measurement, as a share of the measurement.
    """

    from_bytes: int
    alpha_seconds: float
    beta_seconds_per_byte: float
    relative_residual: float


class Line(NamedTuple):
    """A fitted line, and the sum of its squared relative errors."""

    alpha: float
    beta: float
    squares: float


def fit(sizes_bytes: Sequence[float], seconds: Sequence[float]) -> tuple[Regime, ...]:
    """Fits regimes, with ascending sizes, to measured times; where a size has several times their median counts.

    Returns the fewest regimes, at most MAX_REGIMES, that the Bayesian information criterion justifies (Schwarz, Annals of Statistics 6,
    1978), with the switch points that leave the least residual; repeats at the sizes show how much of it is noise. Least squares are on
    relative errors, so that small messages count as much as large ones; alpha and beta are not negative. Raises UserError for fewer than
    MIN_SIZES sizes, and for sizes or times that are not positive.
    """
    sizes, times, noise = _medians(sizes_bytes, seconds)
    num_sizes = len(sizes)

    @functools.cache
    def line_between(begin: int, end: int) -> Line:
        return line(sizes[begin:end], times[begin:end])

    def is_regime(begin: int, end: int) -> bool:
        return end - begin >= MIN_SIZES and sizes[end - 1] >= MIN_SPAN * sizes[begin]

    candidates = []
    for num_regimes in range(1, MAX_REGIMES + 1):
        for switches in itertools.combinations(range(1, num_sizes), num_regimes - 1):
            ranges = list(itertools.pairwise((0, *switches, num_sizes)))
            if num_regimes == 1 or all(is_regime(begin, end) for begin, end in ranges):
                squares = sum(line_between(begin, end).squares for begin, end in ranges)
                candidates.append((_criterion(squares, num_sizes, num_regimes, noise), squares, ranges))
    _, _, ranges = min(candidates)
    return tuple(
        Regime(int(sizes[begin]), alpha, beta, float((squares / (end - begin)) ** 0.5))
        for begin, end in ranges
        for alpha, beta, squares in [line_between(begin, end)]
    )


def seconds_of(regimes: Sequence[Regime], size_bytes: float) -> float:
    """Returns the time of a message in seconds. Lines go on below the first regime and beyond the last one."""
    regime = regime_of(regimes, size_bytes)
    return regime.alpha_seconds + regime.beta_seconds_per_byte * size_bytes


def regime_of(regimes: Sequence[Regime], size_bytes: float) -> Regime:
    return next((regime for regime in reversed(regimes) if regime.from_bytes <= size_bytes), regimes[0])


def _medians(sizes_bytes: Sequence[float], seconds: Sequence[float]) -> tuple[np.ndarray, np.ndarray, float]:
    """Returns ascending sizes, the median time of each, and the relative standard error of such a median, that of a typical size."""
    sizes, times = np.asarray(sizes_bytes, float), np.asarray(seconds, float)
    if not (np.isfinite(sizes).all() and (sizes >= 1).all()):
        raise UserError("a fit of alpha and beta needs sizes of at least 1 byte")
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise UserError("a fit of alpha and beta needs times above 0 seconds")
    distinct = np.unique(sizes)
    if len(distinct) < MIN_SIZES:
        raise UserError(f"a fit of alpha and beta needs times at {MIN_SIZES} sizes or more, not {len(distinct)}")
    repeats = [times[sizes == size] for size in distinct]
    medians = np.array([np.median(values) for values in repeats])
    pairs = [(values, median) for values, median in zip(repeats, medians, strict=True) if len(values) > 1]
    errors = [OF_MEDIAN * values.std(ddof=1) / len(values) ** 0.5 / median for values, median in pairs]
    return distinct, medians, float(np.median(errors)) if errors else 0.0


def line(sizes: np.ndarray, times: np.ndarray) -> Line:
    """Fits the best line without a negative alpha or beta."""
    # Slow to import, and used only here.
    from scipy.optimize import nnls

    # Scaled, since alpha and beta differ by ten orders of magnitude.
    scale = sizes.max()
    (alpha, beta), distance = nnls(np.column_stack([1 / times, sizes / scale / times]), np.ones(len(times)))
    return Line(float(alpha), float(beta / scale), float(distance**2))


def _criterion(squares: float, num_sizes: int, num_regimes: int, noise: float) -> float:
    """Computes the Bayesian information criterion: alpha and beta of each regime, and each switch point, are parameters."""
    variance = max(squares / num_sizes, RESIDUAL_FLOOR**2, noise**2)
    return num_sizes * np.log(variance) + (3 * num_regimes - 1) * np.log(num_sizes) + EVIDENCE * num_regimes
