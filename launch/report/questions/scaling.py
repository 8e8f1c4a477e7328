"""How each backend scales, weak and strong scaling separately; oversubscribed sizes are left out."""

from collections.abc import Iterable

from common.terminal import filled
from common.words import listed, ranks_of
from launch.report.entries import TIME, Comparison, Entry, value_ratio
from launch.report.findings import Cells, Findings
from launch.report.ratio_text import interval, span, with_interval
from launch.report.statistics import Ratio

QUESTION = "How does each backend scale?"


def answer(comparison: Comparison) -> Findings:
    """Answers for a comparison."""
    with_cores = [entry for entry in comparison.entries if not entry.oversubscribed]
    shared = sorted({entry.num_ranks for entry in comparison.entries if entry.oversubscribed})
    left_out = f" Oversubscribed, left out: {listed(list(map(str, shared)))} ranks." if shared else ""
    sentence = f"{comparison.name}: {_sentence(comparison, with_cores)}.{left_out}"
    return Findings([sentence], filled(comparison.name, [_row(comparison, entry) for entry in with_cores]))


def _sentence(comparison: Comparison, with_cores: Iterable[Entry]) -> str:
    ratios = [(entry, ratio) for entry in with_cores if entry.num_ranks > 1 and (ratio := ratio_of_rates(comparison, entry))]
    largest = max((entry.num_ranks for entry, _ in ratios), default=1)
    efficiencies = {entry.backend: 100 * (ratio.value / largest) for entry, ratio in ratios if entry.num_ranks == largest}
    if not efficiencies:
        return "not measured, since no backend ran both at 1 rank and at a larger size without oversubscription"
    return f"efficiency at {ranks_of(largest)}: {span(efficiencies, '{:.0f} %')}"


def ratio_of_rates(comparison: Comparison, entry: Entry) -> Ratio | None:
    """Returns the ratio of an entry's samples/s to those of its backend's own 1 rank; None where either is not known."""
    return value_ratio(entry, comparison.entry(entry.backend, 1), "samples_per_second")


def _row(comparison: Comparison, entry: Entry) -> Cells:
    """Returns a row. A speed-up is a ratio of times to solution, efficiency a ratio of samples/s per rank."""
    rate = ratio_of_rates(comparison, entry)
    over_own = value_ratio(comparison.entry(entry.backend, 1), entry, TIME)
    return entry.cells | {
        "samples/s": entry.trimmed_mean("samples_per_second"),
        "samples/s over own 1 rank": rate and rate.value,
        "95 % interval": interval(rate) if entry.num_ranks > 1 else None,
        "efficiency (%)": 100 * (rate.value / entry.num_ranks) if rate else None,
        "time to solution (s)": entry.trimmed_mean(TIME),
        "speed-up over own 1 rank": over_own and over_own.value,
        "speed-up over its framework's single": with_interval(value_ratio(comparison.plain_entry(entry.backend), entry, TIME)),
    }
