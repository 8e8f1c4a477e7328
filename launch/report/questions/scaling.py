"""How each backend scales, weak and strong apart; nothing is said of sizes where ranks shared cores. Pure."""

from launch.display import ranks_of
from launch.plan import BASELINE
from launch.report import entries, statistics
from launch.report.tables import BACKEND, INTERVAL, RANKS, RATE, TIME, Column, filled, interval, listed, span

QUESTION = "How does each backend scale?"
COLUMNS = (
    BACKEND, RANKS, RATE, Column("samples/s vs own 1 rank", ".2f"), INTERVAL, Column("efficiency (%)", ".0f"), TIME,
    Column("speed-up vs own 1 rank", ".2f"), Column(f"speed-up vs {BASELINE}", ".2f"), Column("remark"),
)  # fmt: skip
# Equal runs may differ in the last bit.
TOLERANCE = 1e-9


def answer(compared):
    """(sentences, tables) of the comparisons. Speed-ups are ratios of times to solution, efficiencies of samples a second per rank."""
    sentences, tables = [], []
    for one in compared:
        fair = [entry for entry in one.entries if not entry.oversubscribed]
        tables += filled(one.name, COLUMNS, [_row(one, entry) for entry in fair])
        shared = sorted({entry.ranks for entry in one.entries if entry.oversubscribed})
        apart = f" Set apart, since ranks shared cores: {', '.join(map(str, shared))} ranks." if shared else ""
        sentences.append(f"{one.name}: {_sentence(one, fair)}.{apart}")
    return sentences, tables


def _sentence(compared, fair):
    found = [(entry, ratio) for entry in fair if entry.ranks > 1 and (ratio := ratio_of_rates(compared, entry))]
    largest = max((entry.ranks for entry, _ in found), default=1)
    kept = {entry.backend: 100 * statistics.efficiency(ratio.value, largest) for entry, ratio in found if entry.ranks == largest}
    if not kept:
        return "no backend ran at 1 rank and at more with cores for all of them, so nothing can be said"
    return f"at {ranks_of(largest)}, each rank trains {span(kept, '{:.0f} %')} of the samples a second that one rank alone does"


def ratio_of_rates(compared, entry):
    """The Ratio of an entry's samples a second to those of its backend's own 1 rank, or None."""
    return entries.value_ratio(entry, compared.entry(entry.backend, 1), "samples_per_second")


def _row(compared, entry):
    rate = ratio_of_rates(compared, entry)
    of_own = entries.time_ratio(compared.entry(entry.backend, 1), entry)
    of_single = entries.time_ratio(compared.entry(BASELINE, 1), entry)
    return (
        entry.backend,
        entry.ranks,
        entries.typical(entry, "samples_per_second"),
        rate and rate.value,
        interval(rate) if entry.ranks > 1 else None,
        100 * statistics.efficiency(rate.value, entry.ranks) if rate else None,
        entries.time_of(entry),
        of_own and of_own.value,
        of_single and of_single.value,
        _remark(entry, {"samples/s": rate, "speed-up": of_own, f"speed-up vs {BASELINE}": of_single}),
    )


def _remark(entry, ratios):
    """What to say of ratios {what: Ratio or None} that the cores cannot explain; None where they can, and at 1 rank."""
    if not entry.ok or entry.ranks == 1:
        return None
    allowed = min(_allowed(run, entry.ranks) for run in entry.ok)
    limit = allowed * (1 + TOLERANCE)
    above = [what for what, found in ratios.items() if found and found.value > limit]
    return f"{listed(above)} above the {allowed} that the cores allow" if above else None


def _allowed(run, ranks):
    if run["settings"].get("device") == "cuda":
        return ranks
    return statistics.allowed_speed_up(ranks, run["environment"]["cores"] * run["nodes"], run["settings"]["threads"])
