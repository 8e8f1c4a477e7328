"""What to run next, so that the answer becomes sure, and its causes known."""

import math
from collections.abc import Sequence

from common import backends
from common.words import listed
from launch.report import factors, limits, measures
from launch.report.entries import Comparison, Entry
from launch.report.questions import first
from launch.report.statistics import MARGIN, MIN_RUNS_CONFIDENT, Ratio

# Nobody repeats a matrix more often.
MAX_REPEATS = 100


def sentences(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns what to run next, each as a part of one sentence."""
    return [*_repeats(comparisons), *_kernels(comparisons), *_epochs(comparisons), *_transports(comparisons)]


def _repeats(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns how many repeats give a verdict, or decide between backends that are not told apart."""
    fair = [entry for comparison in comparisons for entry in comparison.entries if not entry.oversubscribed and _is_comparable(entry)]
    if not fair:
        return []
    if min(len(entry.records) for entry in fair) < MIN_RUNS_CONFIDENT:
        return [f"--repeats {MIN_RUNS_CONFIDENT} for a verdict"]
    open_ratios = [ratio for comparison in comparisons for size in comparison.sizes for ratio in _open_ratios(comparison, size)]
    num_repeats = max(map(_expected_repeats, open_ratios), default=0)
    if not 0 < num_repeats <= MAX_REPEATS:
        return []
    return [f"--repeats {num_repeats} to find differences of {100 * MARGIN:g} %"]


def _expected_repeats(ratio: Ratio) -> int:
    """Returns the number of repeats after which the interval of a ratio is within MARGIN: its width falls with their square root."""
    width = (ratio.high or ratio.value) / ratio.value - 1
    return max(ratio.num_below, math.ceil(ratio.num_below * (width / MARGIN) ** 2))


def _kernels(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns the setting that gives PyTorch faster products, where MKL's slower kernels are the cause of a difference."""
    records = [record for comparison in comparisons for entry in comparison.entries for record in entry.ok]
    return ["--mkl-kernels fast for PyTorch's products"] if any(slow.is_mkl_slow for slow in limits.slow_products(records)) else []


def _is_comparable(entry: Entry) -> bool:
    """Returns whether an entry has a time to solution, or needs none."""
    return bool(entry.ok) and (measures.time_of(entry) is not None or all(record.target is None for record in entry.records))


def _open_ratios(comparison: Comparison, size: int) -> list[Ratio]:
    """Returns the ratios to the fastest that show neither a difference nor that there is none."""
    placed = first.places(comparison.of_size(size, oversubscribed=False)) if comparison.target is not None else []
    ratios = [place.against for place in placed if place.against and not place.is_apart]
    return [ratio for ratio in ratios if ratio.verdict is False and not ratio.is_equal]


def _epochs(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns the advice to train longer, where runs missed the target."""
    missing = [
        entry.backend
        for comparison in comparisons
        for entry in comparison.entries
        if any(record.status == "ok" and record.reached is False for record in entry.records)
    ]
    return [f"more --epochs for {listed(list(dict.fromkeys(missing)))}, which missed the target"] if missing else []


def _transports(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns the variants that tell library from transport, where the libraries of a framework ran over different transports."""
    ran = {entry.backend: entry for comparison in comparisons for entry in comparison.entries if entry.num_ranks > 1}
    transports = {entry.transport for entry in ran.values() if entry.transport}
    mixed = _frameworks_with_mixed_transports(list(ran.values()))
    lacking = [
        name
        for name in backends.variants_by("transport")
        if name not in ran
        and backends.file_of(name) in ran
        and name.partition("@")[2] in transports
        and backends.declaration_of(name).framework in mixed
    ]
    return [f"add {','.join(lacking)} to tell library from transport"] if lacking else []


def _frameworks_with_mixed_transports(ran: Sequence[Entry]) -> set[str]:
    """Returns the frameworks of which two libraries ran, each over another transport."""
    cells = {factors.factors_of(entry) for entry in ran if entry.transport}
    return {
        framework
        for framework, library, transport in cells
        for other_framework, other_library, other_transport in cells
        if framework == other_framework and library != other_library and transport != other_transport
    }
