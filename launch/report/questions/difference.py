"""What makes the difference between backends: the framework, the library or the transport."""

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from common.terminal import Column, filled
from common.words import ranks_of
from launch.report.entries import Comparison
from launch.report.factors import Pair, Part, pairs, parts, sentences
from launch.report.questions import first
from launch.report.statistics import Ratio
from launch.report.tables import BACKEND, RANKS, Findings, interval_column, through
from launch.report.words import interval, level

QUESTION = "What makes the difference: framework, library or transport?"

COLUMNS: tuple[Column[Pair], ...] = (
    *through("entry", RANKS),
    Column("differs in", lambda pair: pair.factor),
    *through("entry", BACKEND),
    Column("compared with", lambda pair: pair.fastest.backend),
    Column("ratio of seconds per epoch", lambda pair: pair.ratio.value, ".2f"),
    interval_column(lambda pair: interval(pair.ratio)),
    Column("verdict", lambda pair: _verdict(pair.ratio)),
)


class SizedPart(NamedTuple):
    """A part of the differences at a size."""

    num_ranks: int
    part: Part


PART_COLUMNS: tuple[Column[SizedPart], ...] = (
    RANKS,
    Column("part", attrgetter("part.factor")),
    Column("of seconds per epoch", lambda row: f"{row.part.above} over {row.part.below}"),
    Column("ratio", attrgetter("part.ratio.value"), ".2f"),
    interval_column(lambda row: interval(row.part.ratio)),
    Column("verdict", lambda row: _verdict(row.part.ratio)),
    Column("on average", lambda row: row.part.circumstances or None),
)


def _verdict(ratio: Ratio) -> str | None:
    return None if ratio.verdict is None else level(ratio) or first.SLOWER


def answer(comparison: Comparison) -> Findings:
    """Answers for the entries of a comparison that have a target and cores of their own."""
    texts, details, rows, part_rows = [], [], [], []
    for size in comparison.sizes if comparison.target is not None else ():
        placed = first.places(comparison.of_size(size, oversubscribed=False))
        candidates = [place.entry for place in placed if not place.is_apart]
        of_size = parts(candidates)
        texts += _largest(f"{comparison.name}, {ranks_of(size)}", of_size)
        details += sentences(f"{comparison.name}, {ranks_of(size)}", candidates)
        rows += pairs(candidates)
        part_rows += [SizedPart(size, part) for part in of_size]
    tables = [*filled(f"{comparison.name}: parts", PART_COLUMNS, part_rows), *filled(comparison.name, COLUMNS, rows)]
    return Findings(texts, tables, details)


def _largest(at: str, of_size: Sequence[Part]) -> list[str]:
    """Returns the sentence on the largest part; nothing without any."""
    if not of_size:
        return []
    largest = max(of_size, key=lambda part: part.ratio.value)
    value = f"{largest.ratio.value:.2f}" + (f", {interval(largest.ratio)}" if interval(largest.ratio) else "")
    return [f"{at}: the largest part is the {largest.factor}'s, {largest.above} over {largest.below} ({value})."]
