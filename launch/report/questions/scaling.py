"""How each backend scales, weak and strong scaling separately; oversubscribed sizes are left out."""

from collections.abc import Iterable, Mapping

from common.record.definition import Record
from common.terminal import filled
from common.words import listed, ranks_of
from launch.report import environments, measures
from launch.report.entries import Comparison, Entry
from launch.report.findings import Cells, Findings
from launch.report.ratio_text import interval, span, with_interval
from launch.report.statistics import Ratio

QUESTION = "How does each backend scale?"
# Equal runs may differ in the last bit.
TOLERANCE = 1e-9
OVER_OWN, OVER_PLAIN = "speed-up over own 1 rank", "speed-up over its framework's single"


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
    ceilings = {entry.backend: ceiling(comparison, entry) for entry, _ in ratios if entry.num_ranks == largest}
    reachable = {backend: 100 * (ratio.value / largest) for backend, ratio in ceilings.items() if ratio}
    without = f"; without communication {span(reachable, '{:.0f} %')}" if reachable else ""
    return f"efficiency at {ranks_of(largest)}: {span(efficiencies, '{:.0f} %')}{without}"


def ratio_of_rates(comparison: Comparison, entry: Entry) -> Ratio | None:
    """Returns the ratio of an entry's samples/s to those of its backend's own 1 rank; None where either is not known."""
    return measures.value_ratio(entry, comparison.entry(entry.backend, 1), "samples_per_second")


def ceiling(comparison: Comparison, entry: Entry) -> Ratio | None:
    """Returns the ratio of samples/s to the backend's own 1 rank if nothing were exchanged; None at 1 rank, and without an interval.

    It is the ratio of samples per second of compute. Under weak scaling the samples of a step grow with the number of ranks; under
    strong scaling they stay, and each rank's share of them shrinks.
    """
    ratio = measures.value_ratio(comparison.entry(entry.backend, 1), entry, "breakdown_compute_seconds")
    if entry.num_ranks == 1 or ratio is None or ratio.low is None or ratio.high is None:
        return None
    value, low, high = (entry.batch_ratio * number for number in (ratio.value, ratio.low, ratio.high))
    return ratio._replace(value=value, low=low, high=high)


def _row(comparison: Comparison, entry: Entry) -> Cells:
    """Returns a row. A speed-up is a ratio of times to solution, efficiency a ratio of samples/s per rank."""
    rate = ratio_of_rates(comparison, entry)
    bases = {OVER_OWN: comparison.entry(entry.backend, 1), OVER_PLAIN: comparison.plain_entry(entry.backend)}
    speed_ups = {name: measures.time_ratio(base, entry) for name, base in bases.items()}
    over_own = speed_ups[OVER_OWN]
    return entry.cells | {
        "samples/s": entry.trimmed_mean("samples_per_second"),
        "samples/s over own 1 rank": rate and rate.value,
        "95 % interval": interval(rate) if entry.num_ranks > 1 else None,
        "ceiling without communication": with_interval(ceiling(comparison, entry)),
        "efficiency (%)": 100 * (rate.value / entry.num_ranks) if rate else None,
        "time to solution (s)": measures.time_of(entry),
        OVER_OWN: over_own and over_own.value,
        OVER_PLAIN: with_interval(speed_ups[OVER_PLAIN]),
        "remark": _remark(entry, {"samples/s": rate, "speed-up": over_own, OVER_PLAIN: speed_ups[OVER_PLAIN]}),
    }


def _remark(entry: Entry, ratios: Mapping[str, Ratio | None]) -> str | None:
    """Names the superlinear ones of ratios by name; None at 1 rank and where there are none."""
    if not entry.ok or entry.num_ranks == 1:
        return None
    allowed = min(map(_allowed, entry.ok))
    limit = allowed * (1 + TOLERANCE)
    above = [name for name, ratio in ratios.items() if ratio and ratio.value > limit]
    return f"superlinear: {listed(above)} above {allowed}" if above else None


def _allowed(record: Record) -> int:
    """Returns the largest speed-up over one rank without superlinear effects: the number of ranks with cores, or a GPU, of their own."""
    if environments.device_of(record) == "cuda":
        return record.num_ranks
    cores_per_rank = record.settings.cores_per_rank or record.settings.threads
    return min(record.num_ranks, max(record.environment.num_cores * (record.num_nodes or 1) // cores_per_rank, 1))
