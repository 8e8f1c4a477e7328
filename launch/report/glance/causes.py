"""Why backends differ: the speed of products, framework, library and transport, and the communication that computation does not hide."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from common.record.definition import Record
from common.words import ranks_of
from launch.report import factors, limits
from launch.report.entries import Comparison, Entry
from launch.report.glance.names import short_names
from launch.report.questions import first, leaving, machines, step
from launch.report.statistics import MIN_RUNS_CONFIDENT, Ratio

# A factor with a smaller effect explains little.
SMALL = 0.02


class Cause(NamedTuple):
    """A cause and its evidence; `ratios`: the ratios of seconds per epoch that show it, by comparison or machine."""

    kind: str
    text: str
    ratios: dict[str, Ratio]


def of_machine(comparisons: Sequence[Comparison]) -> list[Cause]:
    """Returns the causes of the differences on a machine, at the largest size of each comparison that has cores of its own."""
    at_largest = [(comparison, _largest_fair_size(comparison)) for comparison in comparisons if comparison.target is not None]
    records = [record for comparison in comparisons for entry in comparison.entries for record in entry.ok]
    return [*_products(records), *_factors(at_largest), *_communication(at_largest)]


def of_machines(comparisons: Sequence[Comparison]) -> list[Cause]:
    """Returns the causes of the differences on several machines: the products of each."""
    compared_on = machines.by_machine(comparisons)
    records_of = {
        machine: [record for comparison in compared for entry in comparison.entries for record in entry.ok]
        for machine, compared in compared_on.items()
    }
    return [cause._replace(text=f"{machine}: {cause.text}") for machine, records in records_of.items() for cause in _products(records)]


def where(comparisons: Sequence[Comparison]) -> str:
    """Returns the size to which the causes on a machine belong; empty where they belong to several."""
    sizes = {_largest_fair_size(comparison) for comparison in comparisons if comparison.target is not None}
    return ranks_of(*sizes) if len(sizes) == 1 else ""


def of_leaving(comparisons: Sequence[Comparison]) -> str:
    """Returns what leaving Horovod costs or gains an epoch, by the fastest backend that a user may go to; empty where none was measured."""
    name_of = short_names(comparisons)
    texts: dict[str, list[str]] = {}
    for comparison in comparisons:
        by_framework: dict[str, leaving.Move] = {}
        for move in leaving.moves(comparison, _largest_fair_size(comparison)):
            by_framework.setdefault(move.framework, move)
        for move in by_framework.values():
            texts.setdefault(move.taken.backend, []).append(f"{in_percent(move.ratio)} on {name_of[comparison.name]}")
    changes = [f"{backend} {', '.join(of_backend)}" for backend, of_backend in texts.items()]
    return f"Leaving {leaving.LIBRARY}, an epoch: {'; '.join(changes)}" if changes else ""


def _products(records: Sequence[Record]) -> list[Cause]:
    return [
        Cause(
            "products",
            f"{slow.framework}'s {slow.number} products reach {slow.percent:.0f} % of {slow.place} ({slow.limit.library}'s 100 %)"
            + (": see --mkl-kernels fast" if slow.is_mkl_slow else ""),
            {},
        )
        for slow in limits.slow_products(records)
    ]


def _largest_fair_size(comparison: Comparison) -> int:
    return max((entry.num_ranks for entry in comparison.entries if not entry.oversubscribed), default=0)


def _factors(at_largest: Sequence[tuple[Comparison, int]]) -> list[Cause]:
    """Returns a cause for each two levels of a factor, the largest first."""
    ratios_of: dict[tuple[str, str, str], dict[str, Ratio]] = {}
    name_of = short_names(comparison for comparison, _ in at_largest)
    for comparison, size in at_largest:
        placed = first.places(comparison.of_size(size, oversubscribed=False))
        for part in _largest_parts(factors.parts([place.entry for place in placed if not place.is_apart])):
            above, below = map(str, part.levels)
            is_reversed = (part.factor, below, above) in ratios_of
            key, ratio = ((part.factor, below, above), _inverse(part.ratio)) if is_reversed else ((part.factor, above, below), part.ratio)
            ratios_of.setdefault(key, {})[name_of[comparison.name]] = ratio
    ordered = sorted(ratios_of.items(), key=lambda item: -max(abs(math.log(ratio.value)) for ratio in item[1].values()))
    return [
        Cause(factor, f"{above} against {below}: {_listed(ratios)}", ratios)
        for (factor, above, below), ratios in ordered
        if any(abs(math.log(ratio.value)) > SMALL for ratio in ratios.values())
    ]


def _largest_parts(parts: Iterable[factors.Part]) -> list[factors.Part]:
    """Returns of the parts with one level in the numerator the largest: the others follow from it."""
    largest: dict[tuple[str, str | None], factors.Part] = {}
    for part in parts:
        key = part.factor, part.levels[0]
        if key not in largest or part.ratio.value > largest[key].ratio.value:
            largest[key] = part
    return list(largest.values())


def _inverse(ratio: Ratio) -> Ratio:
    low, high = (bound and 1 / bound for bound in (ratio.high, ratio.low))
    return Ratio(1 / ratio.value, low, high, ratio.num_below, ratio.num_above, ratio.paired)


def _listed(ratios: Mapping[str, Ratio]) -> str:
    return ", ".join(f"{in_percent(ratio)} on {name}" for name, ratio in ratios.items())


def in_percent(ratio: Ratio) -> str:
    """Returns a ratio as what it adds in percent, with its interval if it has a verdict."""
    value = f"{100 * (ratio.value - 1):+.0f} %"
    if ratio.low is None or ratio.high is None or min(ratio.num_above, ratio.num_below) < MIN_RUNS_CONFIDENT:
        return value
    return f"{value} ({percents(ratio.low, ratio.high)})"


def percents(low: float, high: float) -> str:
    """Returns the ends of an interval of a ratio as what they add in percent."""
    return f"{100 * (low - 1):.0f} to {100 * (high - 1):.0f}"


def _communication(at_largest: Sequence[tuple[Comparison, int]]) -> list[Cause]:
    """Returns the cause on the milliseconds of a step that communication adds, by transport and workload; none where it is not measured."""
    texts = []
    name_of = short_names(comparison for comparison, _ in at_largest)
    for comparison, size in at_largest:
        by_transport: dict[str, list[float]] = {}
        for entry in comparison.of_size(size, oversubscribed=False) if size > 1 else ():
            exposed = _exposed_milliseconds(comparison, entry)
            if exposed is not None and entry.transport:
                by_transport.setdefault(entry.transport, []).append(exposed)
        if by_transport:
            spans = ", ".join(f"{transport} {_span(values)}" for transport, values in sorted(by_transport.items()))
            texts.append(f"{spans} on {name_of[comparison.name]}")
    return [Cause("step", f"exposed communication, ms: {'; '.join(texts)}", {})] if texts else []


def _exposed_milliseconds(comparison: Comparison, entry: Entry) -> float | None:
    return step.parts(comparison, entry).get(step.EXPOSED)


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"
