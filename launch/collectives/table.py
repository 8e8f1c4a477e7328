"""What is printed: the table of nccl-tests with three more columns for each half, and alpha and beta below it.

The columns up to the second #wrong are those of nccl-tests (src/util.cu), in their widths, so that what reads theirs reads these. Then
follow the smallest and the largest time of the repeats, out of place and in place, and the bandwidth of a copy in main memory.
"""

from collections.abc import Sequence

import numpy as np

from common import units
from common.cost.collectives import COLLECTIVES
from launch.collectives.measurement import Fit, Measurement
from launch.forecast.network.hockney import Regime
from launch.report import statistics

TYPE = "float"
US, GB = 1e6, 1e9
# Those of nccl-tests, and ours.
HEADER = [
    "#                                                              out-of-place                       in-place        "
    "       out-of-place        in-place      ",
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong"
    "      low     high      low     high    copy",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)        "
    "     (us)     (us)     (us)     (us)  (GB/s)",
]
NO_HALF = f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}  {'N/A':>6}"
NO_RANGE = f"  {'N/A':>7}  {'N/A':>7}"


def header(library: str, collective: str, num_ranks: int, place: str) -> list[str]:
    """Returns the lines above the rows of a collective; `place` is its number among all collectives, as in 3/21."""
    return ["#", f"# [{place}] {collective} over {library}, {num_ranks} ranks", "#", *HEADER]


def row(out_of_place: Measurement | None, in_place: Measurement | None, copy_seconds: Sequence[float] | None) -> str:
    """Returns the line of one size. It has two halves; one may be missing. A barrier has no copy."""
    measurement = out_of_place or in_place
    assert measurement, "a library has each of its collectives in place or out of place"
    kind = COLLECTIVES[measurement.collective]
    count = measurement.num_elements // measurement.num_ranks if kind.divided else measurement.num_elements
    start = f"{measurement.size_bytes:>12}  {count:>12}  {TYPE:>8}  {kind.redop:>6}  {kind.root:>6}"
    copied = "N/A" if copy_seconds is None else number(measurement.size_bytes / float(np.median(copy_seconds)) / GB, 6)
    return f"{start}{_half(out_of_place)}{_half(in_place)}{_range(out_of_place)}{_range(in_place)}  {copied:>6}"


def footer(measurements: Sequence[Measurement], fit: Fit | None) -> list[str]:
    """Returns the lines below the rows of a collective: its wrong elements, the mean bus bandwidth, and the fit."""
    num_wrong = sum(measurement.num_wrong for measurement in measurements)
    lines = [f"# {'Out of bounds values':<20} : {num_wrong} {'FAILED' if num_wrong else 'OK'}"]
    if measurements[0].collective != "barrier":
        bandwidth = np.mean([measurement.bus_bytes_per_second for measurement in measurements])
        lines.append(f"# {'Avg bus bandwidth':<20} : {bandwidth / GB:g}")
    if fit:
        regimes = map(_regime_text, fit.regimes) if fit.regimes else ["no fit: it needs 3 sizes or more, and scipy"]
        lines += [f"# {'alpha + beta n':<20} : {'in place' if fit.in_place else 'out of place'}, {text}" for text in regimes]
    return lines


def _regime_text(regime: Regime) -> str:
    beta = regime.beta_seconds_per_byte
    bandwidth = f" ({1 / beta / GB:.3g} GB/s)" if beta else ""
    return (
        f"from {units.whole_text(regime.from_bytes)}: alpha {regime.alpha_seconds * US:.4g} us, beta {beta * GB:.3g} ns/B{bandwidth}, "
        f"residual {regime.relative_residual:.1%}"
    )


def interval_text(num_repeats: int) -> str:
    """Describes what the range of the repeats is."""
    if num_repeats == 1:
        return "one repeat, which has no interval"
    least = "at least " if num_repeats >= statistics.MIN_RUNS_CONFIDENT else ""
    return (
        f"median of {num_repeats} repeats; low to high is their range, which has the true median with {least}"
        f"{statistics.coverage(num_repeats):.0%} confidence"
    )


def number(value: float, width: int) -> str:
    """Formats a number with as many decimals as fit into the width, two at most (nccl-tests, src/util.cu, getFloatStr)."""
    for decimals in (2, 1, 0):
        if len(text := f"{value:.{decimals}f}") <= width:
            return text
    return f"{value:.1e}" if width >= 7 else f"{value:.0e}"


def _half(measurement: Measurement | None) -> str:
    if measurement is None:
        return NO_HALF
    speeds = (measurement.algorithm_bytes_per_second, measurement.bus_bytes_per_second)
    algorithm, bus = (number(speed / GB, 6) for speed in speeds)
    return f"  {number(measurement.median_seconds * US, 7):>7}  {algorithm:>6}  {bus:>6}  {measurement.num_wrong:>6}"


def _range(measurement: Measurement | None) -> str:
    return NO_RANGE if measurement is None else "".join(f"  {number(end(measurement.seconds) * US, 7):>7}" for end in (min, max))
