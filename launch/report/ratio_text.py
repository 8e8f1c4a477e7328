"""Ratios and numbers as text."""

from collections.abc import Mapping

from launch.report.statistics import MARGIN, MIN_RUNS_CONFIDENT, Ratio

NO_DIFFERENCE, EQUAL = "no difference shown", f"no difference beyond {100 * MARGIN:g} %"


def interval(ratio: Ratio | None) -> str | None:
    """Returns the interval of a ratio as text; None where it has none."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    return f"{_bound(ratio.low)} to {_bound(ratio.high)}"


def with_interval(ratio: Ratio | None) -> str | None:
    """Returns a ratio and its interval as text, for a table; the number alone where there are too few runs for an interval."""
    return ratio and (f"{ratio.value:.2f}" if ratio.low is None else f"{ratio.value:.2f} ({interval(ratio)})")


def _bound(bound: float) -> str:
    """Returns the bound with as many decimals as show on which side of 1 it is, two to four."""
    texts = [f"{bound:.{num_decimals}f}" for num_decimals in (2, 3, 4)]
    return next((text for text in texts if float(text) != 1), texts[0])


def runs_against(num_runs: int, num_against: int, paired: bool) -> str:
    """Returns the numbers of runs on the two sides of a ratio as text."""
    if num_runs != num_against:
        return f"{num_runs} {'run' if num_runs == 1 else 'runs'} against {num_against}"
    if num_runs == 1:
        return "one run each"
    return f"{num_runs} {'pairs' if paired else 'runs each'}"


def uncertainty(ratio: Ratio) -> str:
    """Returns the interval of a ratio and its numbers of runs as text; those below come first, since they are the subject."""
    runs = runs_against(ratio.num_below, ratio.num_above, ratio.paired)
    return runs if ratio.low is None else f"95 % interval {interval(ratio)}, {runs}"


def equality(ratio: Ratio) -> str | None:
    """Returns how the sides of a ratio compare whose interval has 1, as text; None for any other ratio."""
    if ratio.is_difference is not False:
        return None
    return EQUAL if ratio.is_equal else NO_DIFFERENCE


def in_percent(ratio: Ratio) -> str:
    """Returns a ratio as what it adds in percent, with its interval if it has a verdict."""
    value = f"{100 * (ratio.value - 1):+.0f} %"
    if ratio.low is None or ratio.high is None or min(ratio.num_above, ratio.num_below) < MIN_RUNS_CONFIDENT:
        return value
    return f"{value} ({percents(ratio.low, ratio.high)})"


def percents(low: float, high: float) -> str:
    """Returns the ends of an interval of a ratio as what they add in percent."""
    return f"{100 * (low - 1):.0f} to {100 * (high - 1):.0f}"


def span(values: Mapping[str, float], form: str) -> str:
    """Returns the smallest and the largest of numbers by name, as text."""
    least, most = min(values, key=lambda name: values[name]), max(values, key=lambda name: values[name])
    if least == most:
        return f"{form.format(values[least])} ({least})"
    return f"{form.format(values[least])} ({least}) to {form.format(values[most])} ({most})"
