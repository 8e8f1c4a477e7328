"""How each backend scales, weak and strong scaling separately; oversubscribed sizes are left out. Pure."""

from operator import attrgetter

from common.backends import BASELINE
from launch.report import comparable, entries
from launch.report.questions import step
from launch.report.tables import BACKEND, INTERVAL, RANKS, RATE, TIME, Column, filled
from launch.report.words import interval, listed, ranks_of, span

QUESTION = "How does each backend scale?"
COLUMNS = (
    BACKEND, RANKS, RATE, Column("samples/s over own 1 rank", ".2f"), INTERVAL, Column("ceiling without communication"),
    Column("efficiency (%)", ".0f", brief=True), TIME, Column("speed-up over own 1 rank", ".2f"),
    Column(f"speed-up over {BASELINE}", brief=True), Column("remark"),
)  # fmt: skip
# Equal runs may differ in the last bit.
TOLERANCE = 1e-9


def answer(comparison):
    """(sentences, tables) of a comparison. Speed-up: ratio of times to solution. Efficiency: ratio of samples/s per rank."""
    fair = [entry for entry in comparison.entries if not entry.oversubscribed]
    shared = sorted({entry.num_ranks for entry in comparison.entries if entry.oversubscribed})
    left_out = f" Oversubscribed, left out: {listed(list(map(str, shared)))} ranks." if shared else ""
    sentence = f"{comparison.name}: {_sentence(comparison, fair)}.{left_out}"
    return [sentence], filled(comparison.name, COLUMNS, [_row(comparison, entry) for entry in fair])


def _sentence(comparison, fair):
    ratios = [(entry, ratio) for entry in fair if entry.num_ranks > 1 and (ratio := ratio_of_rates(comparison, entry))]
    largest = max((entry.num_ranks for entry, _ in ratios), default=1)
    kept = {entry.backend: 100 * (ratio.value / largest) for entry, ratio in ratios if entry.num_ranks == largest}
    if not kept:
        return "not measured, since no backend ran both at 1 rank and at a larger size without oversubscription"
    ceilings = {entry.backend: ceiling(comparison, entry) for entry, _ in ratios if entry.num_ranks == largest}
    reachable = {backend: 100 * (ratio.value / largest) for backend, ratio in ceilings.items() if ratio and ratio.high < largest}
    without = f"; without communication {span(reachable, '{:.0f} %')}" if reachable else ""
    return f"efficiency at {ranks_of(largest)}: {span(kept, '{:.0f} %')}{without}"


def ratio_of_rates(comparison, entry):
    """The Ratio of an entry's samples/s to those of its backend's own 1 rank, or None."""
    return entries.value_ratio(entry, comparison.entry(entry.backend, 1), attrgetter("samples_per_second"))


def ceiling(comparison, entry):
    """Returns the Ratio of samples/s to the backend's own 1 rank if nothing were exchanged; None at 1 rank, and where a size has one run.

    It is the ratio of samples per second of compute. Under weak scaling the samples of a step grow with the number of ranks; under
    strong scaling they stay, and each rank's share of them shrinks.
    """
    ratio = entries.value_ratio(comparison.entry(entry.backend, 1), entry, step.seconds_of("compute_seconds"))
    if entry.num_ranks == 1 or ratio is None or ratio.low is None:
        return None
    return ratio._replace(**{name: entry.batch_ratio * getattr(ratio, name) for name in ("value", "low", "high")})


def _row(comparison, entry):
    rate = ratio_of_rates(comparison, entry)
    reachable = ceiling(comparison, entry)
    speed_up = entries.time_ratio(comparison.entry(entry.backend, 1), entry)
    speed_up_over_single = entries.time_ratio(comparison.entry(BASELINE, 1), entry)
    return (
        entry.backend,
        entry.num_ranks,
        entries.typical(entry, "samples_per_second"),
        rate and rate.value,
        interval(rate) if entry.num_ranks > 1 else None,
        interval(reachable) if reachable and reachable.high >= entry.num_ranks else _with_interval(reachable),
        100 * (rate.value / entry.num_ranks) if rate else None,
        entries.time_of(entry),
        speed_up and speed_up.value,
        _with_interval(speed_up_over_single) if entry.backend != BASELINE else None,
        _remark(entry, {"samples/s": rate, "speed-up": speed_up, f"speed-up over {BASELINE}": speed_up_over_single}),
    )


def _with_interval(ratio):
    """A Ratio and its interval, as text; the number alone where there are too few runs for an interval."""
    return ratio and (f"{ratio.value:.2f}" if ratio.low is None else f"{ratio.value:.2f} ({interval(ratio)})")


def _remark(entry, ratios):
    """Names the superlinear ones of {name: Ratio or None}; None at 1 rank and where there are none."""
    if not entry.ok or entry.num_ranks == 1:
        return None
    allowed = min(map(_allowed, entry.ok))
    limit = allowed * (1 + TOLERANCE)
    above = [name for name, ratio in ratios.items() if ratio and ratio.value > limit]
    return f"superlinear: {listed(above)} above {allowed}" if above else None


def _allowed(record):
    """The largest speed-up over one rank without superlinear effects: the number of ranks with cores, or a GPU, of their own."""
    if comparable.device_of(record) == "cuda":
        return record.num_ranks
    cores_per_rank = record.settings.cores_per_rank or record.settings.threads
    return min(record.num_ranks, max(record.environment.num_cores * record.num_nodes // cores_per_rank, 1))
