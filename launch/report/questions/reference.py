"""Whether a machine's ratios agree with those of the committed sets, and by what they do not: framework, library or transport."""

import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np

from common.backends import ROOT, declaration_of
from common.record.definition import Record
from launch.report import collect, comparable, entries, judgement
from launch.report.entries import Comparison, Entry
from launch.report.factors import FACTORS
from launch.report.judgement import Judged
from launch.report.questions import first
from launch.report.statistics import MARGIN
from launch.report.tables import BACKEND, RANKS, Column, Findings, Section, filled, interval_column, through
from launch.report.words import EQUAL, interval, level, listed, ranks_of

QUESTION = "Do the ratios agree with those of the committed sets?"
SETS = tuple(ROOT / "results" / "reference" / name for name in ("two-cores", "zen4-default", "zen5-default", "zen4-fast", "zen5-fast"))
AGREES, DIFFERS, OPEN = f"agrees within {100 * MARGIN:g} %", "differs", "open"


def verdict(judged: Judged) -> str:
    """Returns whether a ratio agrees with the committed one: its quotient is known to be near 1, known to differ from 1, or neither."""
    if judged.quotient.verdict is None:
        return OPEN
    if judged.quotient.verdict:
        return DIFFERS
    return AGREES if level(judged.quotient) == EQUAL else OPEN


def _part(factor: str, judged: Judged) -> float:
    return judged.parts[factor]


COLUMNS: tuple[Column[Judged], ...] = (
    RANKS,
    *through("entry", BACKEND),
    Column("compared with", attrgetter("fastest.backend")),
    Column("committed", attrgetter("committed.value"), ".2f"),
    Column("here", attrgetter("here.value"), ".2f"),
    Column("here over committed", attrgetter("quotient.value"), ".2f"),
    interval_column(lambda judged: interval(judged.quotient)),
    Column("verdict", verdict),
    *(Column(f"by {factor}", partial(_part, factor), ".2f") for factor in FACTORS),
    Column("by what remains", attrgetter("remainder"), ".2f"),
)


def section(records: Sequence[Record]) -> Section:
    """Returns the section on records of one machine, with a table for each committed set and workload.

    A set that has some of these runs itself is left out, and one with another --mkl-kernels.
    """
    run_ids = {record.settings.run_id for record in records}
    kernels = {record.settings.mkl_kernels for record in records}
    sentences, tables = [], []
    for folder in SETS:
        committed, _ = collect.collect([folder])
        is_own = not run_ids.isdisjoint(record.settings.run_id for record in committed)
        if is_own or (kernels and kernels.isdisjoint(record.settings.mkl_kernels for record in committed)):
            continue
        findings = answer(folder, records, committed)
        sentences += findings.sentences
        tables += findings.tables
    if not sentences:
        sentences.append(f"No other committed set has --mkl-kernels {listed(sorted(kernels))}.")
    return Section("reference", QUESTION, sentences, tables)


def answer(folder: Path, records: Sequence[Record], committed: Sequence[Record]) -> Findings:
    """Judges records against a committed set. Raises UserError where they trained different things."""
    plain, _ = entries.split_traced(records)
    comparable.check_training([*plain, *committed])
    committed_by_name = {comparison.name: comparison for comparison in entries.comparisons(committed)}
    sentences, tables, num_judged = [], [], 0
    for comparison in entries.comparisons(plain):
        rows = []
        for size in comparison.sizes:
            here, there = (candidates(compared, size) for compared in (comparison, committed_by_name.get(comparison.name)))
            of_size = judgement.judged(here, there)
            rows += of_size
            sentences += _sentences(f"{comparison.name}, {ranks_of(size)}, against {folder.name}", of_size)
            sentences += _product_sentences(f"{comparison.name}, {ranks_of(size)}, against {folder.name}", of_size, here, there)
        num_judged += len(rows)
        tables += filled(f"{comparison.name}: against {folder.name}", COLUMNS, rows)
    if not num_judged:
        sentences.append(f"Against {folder.name}: nothing to judge, since no workload and size has two backends in both.")
    return Findings(sentences, tables)


def candidates(comparison: Comparison | None, size: int) -> list[Entry]:
    """Returns the entries of a size that seconds per epoch alone compare, the fastest first."""
    placed = first.places(comparison.of_size(size, oversubscribed=False)) if comparison else []
    return [place.entry for place in placed if not place.is_apart]


def _sentences(at: str, judgements: Sequence[Judged]) -> list[str]:
    """Returns the sentence that counts the verdicts, and names the factor by which the ratios that differ do."""
    if not judgements:
        return []
    verdicts = list(map(verdict, judgements))
    counts = ", ".join(f"{name}: {verdicts.count(name)}" for name in (AGREES, DIFFERS, OPEN))
    text = f"{at}, {len(judgements)} ratios to {judgements[0].fastest.backend} ({counts})"
    by_factor: dict[str, list[str]] = {}
    for judged in judgements:
        if verdict(judged) == DIFFERS:
            factor, name = judged.largest_part, judged.entry.backend
            by_factor.setdefault(factor, []).append(f"{name} ({judged.quotient.value:.2f}, of it {judged.parts[factor]:.2f})")
    differing = "; ".join(f"most by the {factor}: {listed(backends)}" for factor, backends in by_factor.items())
    return [f"{text}. {differing[0].upper()}{differing[1:]}." if differing else f"{text}."]


def _product_sentences(at: str, judgements: Sequence[Judged], here: Iterable[Entry], committed: Iterable[Entry]) -> list[str]:
    """Returns the sentence on the two frameworks whose matrix products, one over the other, differ most from those in the committed set."""
    if not any(verdict(judged) == DIFFERS and judged.largest_part == "framework" for judged in judgements):
        return []
    products, committed_products = _products(here), _products(committed)
    pairs = [
        (above, below, products[above] / products[below], committed_products[above] / committed_products[below])
        for above, below in itertools.permutations(products, 2)
        if above in committed_products and below in committed_products
    ]
    above, below, ratio, committed_ratio = max(pairs, key=lambda pair: pair[2] / pair[3], default=("", "", 1.0, 1.0))
    if ratio / committed_ratio < 1 + MARGIN:
        return []
    return [
        f"{at}: matrix products of {above} are {ratio:.2f} times as fast as those of {below} here, and {committed_ratio:.2f} times there: "
        "a cause of what the framework changes."
    ]


def _products(side: Iterable[Entry]) -> dict[str, float]:
    """Returns the median speed of each framework's own matrix products."""
    speeds: dict[str, list[float]] = {}
    for entry in side:
        for record in entry.ok:
            if record.peak_flops_per_second:
                share = 1.0 if record.framework_product_share is None else record.framework_product_share
                speeds.setdefault(declaration_of(entry.backend).framework, []).append(share * record.peak_flops_per_second)
    return {name: float(np.median(values)) for name, values in sorted(speeds.items())}
