"""What makes the difference between backends: what framework, library and transport each multiply seconds per epoch by."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from common.backends import declaration_of, file_of
from common.declarations import ALONE
from common.terminal import filled
from common.words import ranks_of
from launch.report import statistics
from launch.report.entries import Comparison, Entry, epoch_ratio
from launch.report.findings import Cells, Findings
from launch.report.questions import first
from launch.report.ratio_text import equality, interval, runs_against
from launch.report.statistics import MIN_RUNS_CONFIDENT, Ratio

QUESTION = "What makes the difference: framework, library or transport?"
FACTORS = ("framework", "library", "transport")
# The framework, library and transport of an entry.
Factors = tuple[str, str, str | None]


class Effect(NamedTuple):
    """An entry and the fastest entry that differs from it in one factor alone, with the ratio of their seconds per epoch."""

    factor: str
    entry: Entry
    fastest: Entry
    ratio: Ratio

    @property
    def name(self) -> str:
        """What is over what, and with what, such as `gloo over mpi, with ddp`."""
        number = FACTORS.index(self.factor)
        above, below = factors_of(self.entry)[number], factors_of(self.fastest)[number]
        _, library, transport = factors_of(self.entry)
        if self.factor == "transport":
            return f"{above} over {below}, with {_without_transport(self.entry)}"
        if self.factor == "library":
            return f"{above} over {below}, with {transport}"
        return f"{above} over {below}, {'without a library' if library == ALONE else f'with {library} and {transport}'}"


def answer(comparison: Comparison) -> Findings:
    """Answers for the entries of a comparison that have cores of their own, in sentences on the largest size with an effect."""
    texts, rows = [], []
    for size, entries in comparison.by_size().items():
        candidates = first.comparable(entries)
        texts = sentences(f"{comparison.name}, {ranks_of(size)}", candidates) or texts
        rows += [
            effect.entry.cells | {"differs in": effect.factor, "compared with": effect.fastest.backend} | _cells(effect.ratio)
            for effect in effects(candidates)
        ]
    return Findings(texts, filled(comparison.name, rows))


def _cells(ratio: Ratio) -> Cells:
    verdict = None if ratio.verdict is None else equality(ratio) or first.SLOWER
    return {"ratio of seconds per epoch": ratio.value, "95 % interval": interval(ratio), "verdict": verdict}


def effects(candidates: Sequence[Entry]) -> list[Effect]:
    """Returns the effects between comparable entries of one size, the fastest first. At 1 rank nothing goes over a transport."""
    has_exchange = bool(candidates) and candidates[0].num_ranks > 1
    return [
        Effect(factor, entry, fastest, ratio)
        for number, factor in enumerate(FACTORS if has_exchange else FACTORS[:-1])
        for fastest, *slower in _groups(entries_by_factors(candidates), number)
        for entry in slower
        if (ratio := epoch_ratio(entry, fastest, candidates))
    ]


def sentences(at: str, candidates: Sequence[Entry]) -> list[str]:
    """Returns a sentence on the effects of each factor."""
    of_size = effects(candidates)
    of_factors = [[effect for effect in of_size if effect.factor == factor] for factor in FACTORS]
    return [_sentence(at, of_factor) for of_factor in of_factors if of_factor]


def factors_of(entry: Entry) -> Factors:
    """Returns the factors of an entry. A variant, such as a ZeRO stage, is a library of its own."""
    name = _without_transport(entry)
    declaration = declaration_of(name)
    library = declaration.library or file_of(name)
    return declaration.framework, library + name.removeprefix(file_of(name)), entry.transport


def _without_transport(entry: Entry) -> str:
    return entry.backend.removesuffix(f"@{entry.transport}")


def entries_by_factors(candidates: Sequence[Entry]) -> dict[Factors, Entry]:
    """Returns the entries whose factors are known. One with a library and no transport has records from before it was recorded."""
    return {factors_of(entry): entry for entry in candidates if entry.transport or declaration_of(entry.backend).library == ALONE}


def _groups(by_factors: Mapping[Factors, Entry], number: int) -> list[list[Entry]]:
    """Returns the entries in lists of those that differ in the factor of this number alone."""
    groups: dict[tuple[str | None, ...], list[Entry]] = {}
    for factors, entry in by_factors.items():
        groups.setdefault(factors[:number] + factors[number + 1 :], []).append(entry)
    return list(groups.values())


def _sentence(at: str, of_factor: Sequence[Effect]) -> str:
    """Returns the sentence on the effects of a factor."""
    ratios = [effect.ratio for effect in of_factor]
    runs = " or ".join(dict.fromkeys(runs_against(ratio.num_above, ratio.num_below, ratio.paired) for ratio in ratios))
    values = [f"{effect.name}: {effect.ratio.value:.2f}{_in_brackets(effect.ratio)}" for effect in of_factor]
    few = [f"a verdict takes {MIN_RUNS_CONFIDENT} repeats"] if any(ratio.verdict is None for ratio in ratios) else []
    return f"{at}, seconds per epoch ({runs}), {of_factor[0].factor}: {'; '.join([*values, *few])}."


def _in_brackets(ratio: Ratio) -> str:
    verdict = equality(ratio) if ratio.verdict is False else None
    parts = statistics.present([verdict, interval(ratio)])
    return f" ({', '.join(parts)})" if parts else ""
