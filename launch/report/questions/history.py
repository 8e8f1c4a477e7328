"""Seconds per epoch from matrix to matrix, in the order of their dates, and what changed between neighbours. Pure."""

from typing import NamedTuple

from launch.report import entries, environments
from launch.report.entries import Entry
from launch.report.regressions import BETTER, LEVEL, TIME, UNKNOWN, WORSE, verdict_of
from launch.report.statistics import Ratio, geometric_mean
from launch.report.tables import BACKEND, INTERVAL, RANKS, Column, apart, filled
from launch.report.words import interval, ranks_of

QUESTION = "How have the times changed?"
COLUMNS = (
    RANKS, BACKEND, Column("matrix begun"), Column("seconds per epoch", ".3f"), Column("95 % from", ".3f"), Column("to", ".3f"),
    Column("after / before", ".3f"), INTERVAL, Column("verdict"), Column("runs"), Column("changed"),
)  # fmt: skip
VERDICTS = (WORSE, BETTER, LEVEL, UNKNOWN)


class State(NamedTuple):
    """An entry in one matrix. `before`: in the last matrix before in which it has a time, or None; `ratio`: of the seconds per epoch of
    the two."""

    began: str
    entry: Entry
    seconds: Ratio | None
    before: "State | None"
    ratio: Ratio | None

    @property
    def verdict(self):
        """That of a time to solution against a baseline; None for the first state."""
        if self.before is None:
            return None
        return verdict_of(self.ratio, TIME) if self.ratio else WORSE


def answer(comparisons):
    """(headline, sentences, tables) of Comparisons of one machine with the matrices of several dates."""
    sentences, tables, verdicts = [], [], []
    for comparison, states_of in states(comparisons):
        changed = [state for chosen in states_of.values() for state in chosen if state.before]
        sentences += _sentences(comparison.name, changed)
        verdicts += [state.verdict for state in changed]
        for title, chosen in apart(comparison.name, comparison.entries):
            tables += filled(title, COLUMNS, [_row(state) for entry in chosen for state in states_of[entry.backend, entry.num_ranks]])
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS if verdict in verdicts]
    headline = f"Seconds per epoch against the matrix before, {len(verdicts)} compared: {', '.join(counts)}."
    return [headline if counts else "No entry is in two matrices; a change takes two."], sentences, tables


def states(comparisons):
    """[(comparison, {(backend, size): its States in the order of their dates})]."""
    records = [record for comparison in comparisons for entry in comparison.entries for record in entry.records]
    began = {matrix: in_order[0].started_at for matrix, in_order in entries.matrices(records).items()}
    return [
        (comparison, {(entry.backend, entry.num_ranks): _states(entry, began) for entry in comparison.entries})
        for comparison in comparisons
    ]  # fmt: skip


def _states(entry, began):
    records_of = {}
    for record in entry.records:
        records_of.setdefault(entries.key_of(record)[0], []).append(record)
    in_order, before = [], None
    for matrix in sorted(records_of, key=began.get):
        after = entry._replace(records=tuple(records_of[matrix]))
        seconds = entries.epoch_interval(after)
        ratio = entries.epoch_ratio(after, before.entry, (after, before.entry)) if before and seconds else None
        in_order.append(State(began[matrix], after, seconds, before, ratio))
        before = in_order[-1] if seconds else before
    return in_order


def _sentences(name, changed):
    """A sentence for each two neighbouring matrices: the entries that changed, and what else did."""
    pairs = {}
    for state in changed:
        pairs.setdefault((state.before.began, state.began), []).append(state)
    return [
        f"{name}, from the matrix begun at {before} to that at {after}: {_counted(chosen)}. "
        f"Changed: {_changes(chosen) or 'no version and no commit'}."
        for (before, after), chosen in sorted(pairs.items())
    ]  # fmt: skip


def _counted(changed):
    texts = []
    for verdict in VERDICTS:
        chosen = [state for state in changed if state.verdict == verdict]
        names = [
            f"{state.entry.backend} at {ranks_of(state.entry.num_ranks)} ({_percent(state.ratio.value) if state.ratio else 'no time'})"
            for state in chosen
        ]
        texts += [f"{verdict}: {', '.join(names) if verdict in (WORSE, BETTER) else f'{len(chosen)} of {len(changed)}'}"] if chosen else []
    ratios = [state.ratio.value for state in changed if state.ratio]
    return "; ".join([*texts, *([f"all together: {_percent(geometric_mean(ratios))}"] if ratios else [])])


def _percent(ratio):
    return f"{100 * (ratio - 1):+.1f} %"


def _changes(changed):
    """The versions and commits that differ between states and those before them, in words; empty without any."""
    before, after = [state.before.entry for state in changed], [state.entry for state in changed]
    return environments.changes(*([record for entry in side for record in entry.records] for side in (before, after)))


def _row(state):
    seconds = state.seconds
    return (
        state.entry.num_ranks, state.entry.backend, state.began, seconds and seconds.value, seconds and seconds.low,
        seconds and seconds.high, state.ratio and state.ratio.value, interval(state.ratio), state.verdict, len(state.entry.records),
        _changes([state]) or "nothing" if state.before else None,
    )  # fmt: skip
