"""What makes the difference between backends: seconds per epoch taken apart into framework, library and transport."""

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from common.backends import declaration_of, file_of
from common.declarations import ALONE
from common.terminal import filled
from common.words import listed, ranks_of
from launch.report import measures, statistics
from launch.report.entries import Comparison, Entry
from launch.report.findings import Cells, Findings
from launch.report.questions import first
from launch.report.ratio_text import equality, interval, runs_against
from launch.report.statistics import MIN_RUNS_CONFIDENT, Ratio

QUESTION = "What makes the difference: framework, library or transport?"
PREPOSITIONS = {"framework": "in", "library": "with", "transport": "over"}
FACTORS = tuple(PREPOSITIONS)
# The framework, library and transport of an entry.
Factors = tuple[str, str, str | None]
REMARK = "ddp over MPI blocks the backward pass, and MPI within a node is shared memory"


def factors_of(entry: Entry) -> Factors:
    """Returns the factors of an entry. A variant, such as a ZeRO stage, is a library of its own."""
    name = entry.backend.removesuffix(f"@{entry.transport}")
    declaration = declaration_of(name)
    library = declaration.library or file_of(name)
    return declaration.framework, library + name.removeprefix(file_of(name)), entry.transport


class Pair(NamedTuple):
    """An entry and the fastest entry that differs from it in one factor alone, with the ratio of their seconds per epoch."""

    factor: str
    entry: Entry
    fastest: Entry
    ratio: Ratio


class Average(NamedTuple):
    """The mean ratio of several pairs that differ in the same way, and in what these pairs differ from each other, as text."""

    ratio: Ratio
    circumstances: str


class Part(NamedTuple):
    """What a level of a factor takes over another one: the ratio of one pair of entries, or the mean of several.

    `above` and `below` name the entries of a pair, and the levels of a mean, whose circumstances are not empty.
    """

    factor: str
    levels: tuple[str | None, str | None]
    above: str
    below: str
    ratio: Ratio
    circumstances: str = ""


def answer(comparison: Comparison) -> Findings:
    """Answers for the entries of a comparison that have a target and cores of their own, those of the largest size in a sentence."""
    texts, details, rows, part_rows = [], [], [], []
    for size in comparison.sizes if comparison.target is not None else ():
        candidates = first.comparable(comparison.of_size(size, oversubscribed=False))
        of_size = parts(candidates)
        if largest := _largest(f"{comparison.name}, {ranks_of(size)}", of_size):
            details += texts
            texts = largest
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
    verdict = None if ratio.verdict is None else equality(ratio) or first.SLOWER
    return {"ratio of seconds per epoch": ratio.value, "95 % interval": interval(ratio), "verdict": verdict}


def _largest(at: str, of_size: Sequence[Part]) -> list[str]:
    """Returns the sentence on the largest part; nothing without any."""
    if not of_size:
        return []
    largest = max(of_size, key=lambda part: part.ratio.value)
    value = f"{largest.ratio.value:.2f}" + (f", {interval(largest.ratio)}" if interval(largest.ratio) else "")
    return [f"{at}: the largest part is the {largest.factor}'s, {largest.above} over {largest.below} ({value})."]


def pairs(candidates: Sequence[Entry]) -> list[Pair]:
    """Returns the pairs of comparable entries of one size, the fastest entry first."""
    return [
        Pair(factor, entry, fastest, ratio)
        for factor, groups in _groups_of(candidates).items()
        for fastest, *slower in groups
        for entry in slower
        if (ratio := measures.epoch_ratio(entry, fastest, candidates))
    ]


def sentences(at: str, candidates: Sequence[Entry]) -> list[str]:
    """Returns sentences on comparable entries of one size, the fastest first: what each factor costs.

    Where several pairs differ in the same way, a sentence has their average in place of the pairs, and names what these differ in. The
    last sentence names the libraries that did not run over each of the transports.
    """
    texts = []
    all_parts = parts(candidates)
    for factor, groups in _groups_of(candidates).items():
        ratios: dict[str, Ratio | None] = {
            f"{part.above} takes {{}} times {part.below}'s"
            + (f" on average {part.circumstances}" if part.circumstances else ""): part.ratio
            for part in all_parts
            if part.factor == factor
        }
        over_mpi = factor == "transport" and any(entry.transport == "mpi" for group in groups for entry in group)
        texts.append(_sentence(at, f"the {factor}'s part", ratios, f"; {REMARK}" if over_mpi else ""))
    if candidates and candidates[0].num_ranks > 1:
        by_factors = entries_by_factors(candidates)
        texts += [_sentence(at, "library and transport together", _interactions(by_factors, candidates)), _not_run(at, by_factors)]
    return [sentence for sentence in texts if sentence]


def parts(candidates: Sequence[Entry]) -> list[Part]:
    """Returns the parts of the differences between comparable entries of one size, the fastest first.

    Where several pairs differ in the same way, the part is their average.
    """
    all_parts, all_pairs = [], pairs(candidates)
    for factor, groups in _groups_of(candidates).items():
        averages = _averages(groups, factor)
        averaged = {frozenset(levels) for levels in averages}
        for pair in all_pairs:
            levels = (_level(pair.entry, factor), _level(pair.fastest, factor))
            if pair.factor == factor and frozenset(levels) not in averaged:
                all_parts.append(Part(factor, levels, pair.entry.backend, pair.fastest.backend, pair.ratio))
        all_parts += [
            Part(factor, (above, below), str(above), str(below), average.ratio, average.circumstances)
            for (above, below), average in averages.items()
            if average.ratio.value > 1
        ]
    return all_parts


def entries_by_factors(candidates: Sequence[Entry]) -> dict[Factors, Entry]:
    """Returns the entries whose factors are known. One with a library and no transport has records from before it was recorded."""
    return {factors_of(entry): entry for entry in candidates if entry.transport or declaration_of(entry.backend).library == ALONE}


def _groups_of(candidates: Sequence[Entry]) -> dict[str, list[list[Entry]]]:
    """Returns the groups of entries that differ in one factor alone, by the factor. At 1 rank nothing goes over a transport."""
    has_exchange = bool(candidates) and candidates[0].num_ranks > 1
    return {
        factor: _groups(entries_by_factors(candidates), lambda factors, number=number: factors[:number] + factors[number + 1 :])
        for number, factor in enumerate(FACTORS if has_exchange else FACTORS[:-1])
    }


def _level(entry: Entry, factor: str) -> str | None:
    return factors_of(entry)[FACTORS.index(factor)]


def _averages(groups: Sequence[Sequence[Entry]], factor: str) -> dict[tuple[str | None, str | None], Average]:
    """Returns the averages of two levels of a factor that differ in several groups, in both directions, by the two levels.

    The estimate by least squares on logarithms is the mean over the groups. Its interval is for these groups and for this average alone.
    """
    pairs_of: dict[tuple[str | None, str | None], list[tuple[Entry, Entry]]] = {}
    for above, below in (pair for group in groups for pair in itertools.permutations(group, 2)):
        pairs_of.setdefault((_level(above, factor), _level(below, factor)), []).append((above, below))
    return {
        levels: Average(ratio, _circumstances([factors_of(above) for above, _ in level_pairs], factor))
        for levels, level_pairs in pairs_of.items()
        if len(level_pairs) > 1 and (ratio := measures.ratio_of_products(level_pairs, 1 / len(level_pairs)))
    }


def _circumstances(factors_of_pairs: Sequence[Factors], factor: str) -> str:
    """Returns in which other factors the pairs differ from each other, such as `with ddp and with Horovod`."""
    columns = zip(FACTORS, zip(*factors_of_pairs, strict=True), strict=True)
    differing = [FACTORS.index(name) for name, levels in columns if name != factor and len(dict.fromkeys(levels)) > 1]
    return listed(
        [" ".join(_in_words(FACTORS[number], level) for number in differing if (level := factors[number])) for factors in factors_of_pairs]
    )


def _in_words(factor: str, level: str) -> str:
    if level == ALONE:
        return "without a library"
    return f"{PREPOSITIONS[factor]} {level}"


def _not_run(at: str, by_factors: Mapping[Factors, Entry]) -> str | None:
    """Returns the sentence on the libraries that lack a transport that others have; None where none does."""
    transports = sorted({transport for *_, transport in by_factors if transport})
    name_of = {
        (framework, library): entry.backend.removesuffix(f"@{transport}")
        for (framework, library, transport), entry in by_factors.items() if transport
    }  # fmt: skip
    lacking = [
        f"{name} over {transport}" for ran, name in name_of.items() for transport in transports if (*ran, transport) not in by_factors
    ]
    return f"{at}: not run: {', '.join(sorted(lacking))}." if lacking else None


def _groups(by_factors: Mapping[Factors, Entry], key: Callable[[Factors], Hashable]) -> list[list[Entry]]:
    """Returns the entries in lists, those whose factors have the same key together, if there are two or more."""
    groups: dict[Hashable, list[Entry]] = {}
    for factors, entry in by_factors.items():
        groups.setdefault(key(factors), []).append(entry)
    return [group for group in groups.values() if len(group) > 1]


def _interactions(by_factors: Mapping[Factors, Entry], candidates: Sequence[Entry]) -> dict[str, Ratio | None]:
    """Returns the ratios of what a transport costs two libraries that both ran over the same two, by the text around the ratio.

    What a transport costs is a ratio itself, and stands in the text.
    """
    ratios: dict[str, Ratio | None] = {}
    for (faster, slower, *_), second in itertools.combinations(_groups(by_factors, lambda factors: factors[:2]), 2):
        over = {entry.transport: entry for entry in second}
        if {faster.transport, slower.transport} <= over.keys():
            above, below = over[slower.transport], over[faster.transport]
            ratio, reference_ratio = (measures.epoch_ratio(*pair, candidates) for pair in ((above, below), (slower, faster)))
            if ratio and reference_ratio:
                text = (
                    f"{above.backend} takes {ratio.value:.2f} times {below.backend}'s, {slower.backend} {reference_ratio.value:.2f} times "
                    f"{faster.backend}'s, and the ratio of the two is {{}}"
                )
                ratios[text] = measures.ratio_of_products([(above, below), (faster, slower)], 1)
    return ratios


def _sentence(at: str, subject: str, ratio_of: Mapping[str, Ratio | None], remark: str = "") -> str | None:
    """Returns a sentence on ratios by the text around them; None without any."""
    ratios = {text: ratio for text, ratio in ratio_of.items() if ratio}
    if not ratios:
        return None
    runs = " or ".join(dict.fromkeys(runs_against(ratio.num_above, ratio.num_below, ratio.paired) for ratio in ratios.values()))
    parts = ", ".join(f"{text.format(f'{ratio.value:.2f}')}{_in_brackets(ratio)}" for text, ratio in ratios.items())
    few = f"; a verdict takes {MIN_RUNS_CONFIDENT} repeats" if any(ratio.verdict is None for ratio in ratios.values()) else ""
    return f"{at}, seconds per epoch ({runs}), {subject}: {parts}{remark}{few}."


def _in_brackets(ratio: Ratio) -> str:
    verdict = equality(ratio) if ratio.verdict is False else None
    parts = statistics.present([verdict, interval(ratio)])
    return f" ({', '.join(parts)})" if parts else ""
