"""What makes the difference between backends: the framework, the library or the transport."""

from launch.report.entries import Comparison
from launch.report.factors import Pair, pairs, sentences
from launch.report.questions import first
from launch.report.tables import BACKEND, RANKS, Column, Findings, filled, interval_column, through
from launch.report.words import interval, level, ranks_of

QUESTION = "What makes the difference: framework, library or transport?"

COLUMNS: tuple[Column[Pair], ...] = (
    *through("entry", RANKS),
    Column("differs in", lambda pair: pair.factor),
    *through("entry", BACKEND),
    Column("compared with", lambda pair: pair.fastest.backend),
    Column("ratio of seconds per epoch", lambda pair: pair.ratio.value, ".2f"),
    interval_column(lambda pair: interval(pair.ratio)),
    Column("verdict", lambda pair: None if pair.ratio.verdict is None else level(pair.ratio) or first.SLOWER),
)


def answer(comparison: Comparison) -> Findings:
    """Answers for the entries of a comparison that have a target and cores of their own."""
    texts, rows = [], []
    for size in comparison.sizes if comparison.target is not None else ():
        placed = first.places(comparison.of_size(size, oversubscribed=False))
        candidates = [place.entry for place in placed if not place.is_apart]
        texts += sentences(f"{comparison.name}, {ranks_of(size)}", candidates)
        rows += pairs(candidates)
    return Findings(texts, filled(comparison.name, COLUMNS, rows))
