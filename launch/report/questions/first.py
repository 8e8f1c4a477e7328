"""Which backend reaches the target first at each size, by how much, and with what uncertainty. Pure."""

from common.backends import BASELINE
from launch.report import entries
from launch.report.tables import ACCURACY, BACKEND, INTERVAL, OVERSUBSCRIBED, RANKS, RATE, TIME, Column, filled
from launch.report.words import interval, listed, ranks_of, runs_against, times_as_fast

QUESTION = "Which backend reaches the target first?"
COLUMNS = (
    RANKS, BACKEND, TIME, Column("ratio to fastest", ".2f"), INTERVAL, Column("verdict"), Column("reached"),
    Column("fastest (s)", ".2f"), Column("slowest (s)", ".2f"), ACCURACY, RATE,
)  # fmt: skip
FASTEST = "fastest"
VERDICTS = {True: "slower", False: "no difference shown"}


def winner(compared):
    """The headline of a comparison: which backend, at which size, reached the target first."""
    fair = [entry for entry in compared.entries if not entry.oversubscribed]
    if compared.target is None:
        return f"{compared.name}: has no target; it is for throughput alone.{_fastest(fair)}"
    timed = by_time(fair) or by_time(compared.entries)
    if not timed:
        return f"{compared.name}: no run reached the target."
    seconds, best = timed[0]
    sentence = f"{compared.name}: {best.backend} at {ranks_of(best.num_ranks)} reached the target first, in {seconds:.2f} s"
    if best.oversubscribed:
        sentence += " (oversubscribed)"
    elif by_time(compared.entries)[0][0] < seconds:
        sentence += " (oversubscribed entries left out)"
    against = entries.time_ratio(compared.entry(BASELINE, 1), best) if best.backend != BASELINE else None
    return f"{sentence}; {times_as_fast(against, BASELINE)}." if against else f"{sentence}."


def _fastest(candidates):
    rates = [(rate, entry) for entry in candidates if (rate := entries.typical(entry, "samples_per_second")) is not None]
    if not rates:
        return ""
    rate, best = max(rates, key=lambda pair: pair[0])
    return f" Highest throughput: {best.backend} at {ranks_of(best.num_ranks)}, {rate:.0f} samples/s."


def by_time(candidates):
    """[(seconds, entry)] of the entries with a time to solution, the fastest first."""
    return sorted(((time, entry) for entry in candidates if (time := entries.time_of(entry)) is not None), key=lambda pair: pair[0])


def answer(compared):
    """(sentences, tables) of the comparisons; oversubscribed entries have their own tables."""
    sentences, tables = [], []
    for one in compared:
        fair, shared = (_by_size(one.entries, oversubscribed) for oversubscribed in (False, True))
        if one.target is not None:
            sentences += [_sentence(one, size, candidates) for size, candidates in fair.items()]
        tables += filled(one.name, COLUMNS, [row for candidates in fair.values() for row in _rows(candidates)])
        tables += filled(f"{one.name}, {OVERSUBSCRIBED}", COLUMNS, [row for candidates in shared.values() for row in _rows(candidates)])
    return sentences, tables


def _by_size(candidates, oversubscribed):
    chosen = [entry for entry in candidates if entry.oversubscribed == oversubscribed]
    return {size: [entry for entry in chosen if entry.num_ranks == size] for size in sorted({entry.num_ranks for entry in chosen})}


def _sentence(compared, size, candidates):
    at = f"{compared.name}, {ranks_of(size)}"
    timed = by_time(candidates)
    if not timed:
        return f"{at}: no backend reached the target."
    (seconds, best), *others = timed
    sentence = f"{at}: {best.backend} is fastest, {seconds:.2f} s"
    if not others:
        return f"{sentence}; no other backend reached the target."
    ratios = {entry.backend: entries.time_ratio(entry, best) for _, entry in others}
    next_one = others[0][1].backend
    level = [backend for backend, found in ratios.items() if found.is_difference is False and backend != next_one]
    further = f" No difference shown from {listed(level)}." if level else ""
    return f"{sentence}; {times_as_fast(ratios[next_one], next_one)}.{further}"


def _rows(candidates):
    timed = by_time(candidates)
    without = [entry for entry in candidates if entries.time_of(entry) is None]
    without.sort(key=lambda entry: -(entries.typical(entry, "samples_per_second") or 0))
    return [_row(entry, timed[0][1] if timed else None) for entry in [*(entry for _, entry in timed), *without]]


def _verdict(against):
    if against.is_difference is None:
        return runs_against(against.num_above, against.num_below, against.paired)
    return VERDICTS[against.is_difference]


def _row(entry, best):
    missed = entries.misses(entry)
    reached = [time for time in entries.times(entry) if time is not None]
    against = entries.time_ratio(entry, best) if best else None
    time = entries.time_of(entry)
    return (
        entry.num_ranks,
        entry.backend,
        time if time is not None else missed[0] if missed else None,
        against.value if against else None,
        interval(against) if entry is not best else None,
        FASTEST if entry is best else _verdict(against) if against else None,
        f"{len(reached)} of {len(entry.runs)}{f' ({listed(sorted(set(missed)))})' if missed else ''}" if reached or missed else None,
        min(reached, default=None),
        max(reached, default=None),
        entries.typical(entry, "accuracy"),
        entries.typical(entry, "samples_per_second"),
    )
