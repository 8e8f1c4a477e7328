"""What makes the difference between backends: the framework, the library or the transport."""

from collections.abc import Sequence

from common.terminal import filled
from common.words import ranks_of
from launch.report.entries import Comparison
from launch.report.factors import Part, pairs, parts, sentences
from launch.report.findings import Cells, Findings
from launch.report.questions import first
from launch.report.statistics import Ratio
from launch.report.words import interval, level

QUESTION = "What makes the difference: framework, library or transport?"


def answer(comparison: Comparison) -> Findings:
    """Answers for the entries of a comparison that have a target and cores of their own."""
    texts, details, rows, part_rows = [], [], [], []
    for size in comparison.sizes if comparison.target is not None else ():
        candidates = first.comparable(comparison.of_size(size, oversubscribed=False))
        of_size = parts(candidates)
        texts += _largest(f"{comparison.name}, {ranks_of(size)}", of_size)
        details += sentences(f"{comparison.name}, {ranks_of(size)}", candidates)
        rows += [
            pair.entry.cells | {"differs in": pair.factor, "compared with": pair.fastest.backend} | _cells(pair.ratio)
            for pair in pairs(candidates)
        ]
        part_rows += [
            {"ranks": size, "part": part.factor, "of seconds per epoch": f"{part.above} over {part.below}"}
            | _cells(part.ratio) | {"on average": part.circumstances or None}
            for part in of_size
        ]  # fmt: skip
    return Findings(texts, [*filled(f"{comparison.name}: parts", part_rows), *filled(comparison.name, rows)], details)


def _cells(ratio: Ratio) -> Cells:
    verdict = None if ratio.verdict is None else level(ratio) or first.SLOWER
    return {"ratio of seconds per epoch": ratio.value, "95 % interval": interval(ratio), "verdict": verdict}


def _largest(at: str, of_size: Sequence[Part]) -> list[str]:
    """Returns the sentence on the largest part; nothing without any."""
    if not of_size:
        return []
    largest = max(of_size, key=lambda part: part.ratio.value)
    value = f"{largest.ratio.value:.2f}" + (f", {interval(largest.ratio)}" if interval(largest.ratio) else "")
    return [f"{at}: the largest part is the {largest.factor}'s, {largest.above} over {largest.below} ({value})."]
