"""A difference of seconds per epoch taken apart into framework, library and transport."""

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence

from common.backends import declaration_of, file_of
from launch.report import entries, statistics
from launch.report.entries import Entry
from launch.report.statistics import MIN_RUNS_CONFIDENT, Ratio
from launch.report.words import interval, level, runs_against

# The library of a backend that needs none. Any other entry without a transport has records from before it was recorded.
ALONE = "none"
FACTORS = ("framework", "library", "transport")
# The framework, library and transport of an entry.
Cell = tuple[str, str, str | None]
REMARK = "ddp over MPI blocks the backward pass, and MPI within a node is shared memory"


def factors_of(entry: Entry) -> Cell:
    """Returns the factors of an entry. A variant, such as a ZeRO stage, is a library of its own."""
    name = entry.backend.removesuffix(f"@{entry.transport}")
    declaration = declaration_of(name)
    library = declaration.library or file_of(name)
    return declaration.framework, library + name.removeprefix(file_of(name)), entry.transport


def sentences(at: str, candidates: Sequence[Entry]) -> list[str]:
    """Returns sentences on comparable entries of one size, the fastest first: how those compare that differ in one factor alone.

    Each entry is compared with the fastest that has the same remaining factors. The last sentence names the libraries that did not run
    over each of the transports. At 1 rank nothing goes over a transport.
    """
    has_exchange = bool(candidates) and candidates[0].num_ranks > 1
    cells = {factors_of(entry): entry for entry in candidates if entry.transport or declaration_of(entry.backend).library == ALONE}
    texts = []
    for number, factor in enumerate(FACTORS if has_exchange else FACTORS[:-1]):
        groups = _groups(cells, lambda cell, number=number: cell[:number] + cell[number + 1 :])
        ratios = {
            f"{entry.backend} takes {{}} times {fastest.backend}'s": entries.epoch_ratio(entry, fastest, candidates)
            for fastest, *slower in groups
            for entry in slower
        }
        over_mpi = factor == "transport" and any(entry.transport == "mpi" for group in groups for entry in group)
        all_ratios = ratios | _averages(groups, number, candidates)
        texts.append(_sentence(at, f"the {factor}'s part", all_ratios, f"; {REMARK}" if over_mpi else ""))
    if has_exchange:
        texts += [_sentence(at, "library and transport together", _interactions(cells, candidates)), _not_run(at, cells)]
    return [sentence for sentence in texts if sentence]


def _averages(groups: Sequence[Sequence[Entry]], number: int, candidates: Sequence[Entry]) -> dict[str, Ratio]:
    """Returns the ratios of two levels of a factor, the slower to the faster, that differ in several groups, by the text around the ratio.

    The estimate by least squares on logarithms is the mean over the groups.
    """
    pairs_of: dict[tuple[str | None, ...], list[tuple[Entry, Entry]]] = {}
    for pair in (pair for group in groups for pair in itertools.permutations(group, 2)):
        pairs_of.setdefault(tuple(factors_of(entry)[number] for entry in pair), []).append(pair)
    ratios = {
        f"on average {above} takes {{}} times {below}'s": entries.ratio_of_products(pairs, 1 / len(pairs), candidates)
        for (above, below), pairs in pairs_of.items()
        if len(pairs) > 1
    }
    return {text: ratio for text, ratio in ratios.items() if ratio and ratio.value > 1}


def _not_run(at: str, cells: Mapping[Cell, Entry]) -> str | None:
    """Returns the sentence on the libraries that lack a transport that others have; None where none does."""
    transports = sorted({transport for *_, transport in cells if transport})
    name_of = {cell[:2]: entry.backend.removesuffix(f"@{entry.transport}") for cell, entry in cells.items() if entry.transport}
    lacking = [f"{name_of[cell]} over {transport}" for cell in name_of for transport in transports if (*cell, transport) not in cells]
    return f"{at}: not run: {', '.join(sorted(lacking))}." if lacking else None


def _groups(cells: Mapping[Cell, Entry], key: Callable[[Cell], Hashable]) -> list[list[Entry]]:
    """Returns the entries in lists, those whose factors have the same key together, if there are two or more."""
    groups: dict[Hashable, list[Entry]] = {}
    for cell, entry in cells.items():
        groups.setdefault(key(cell), []).append(entry)
    return [group for group in groups.values() if len(group) > 1]


def _interactions(cells: Mapping[Cell, Entry], candidates: Sequence[Entry]) -> dict[str, Ratio | None]:
    """Returns the ratios of two libraries that both ran over the same two transports, by the text around the ratio."""
    ratios = {}
    for (faster, slower, *_), second in itertools.combinations(_groups(cells, lambda cell: cell[:2]), 2):
        over = {entry.transport: entry for entry in second}
        if {faster.transport, slower.transport} <= over.keys():
            in_order = over[slower.transport], over[faster.transport], slower, faster
            above, below, reference_above, reference_below = in_order
            text = "{} for {} costs {{}} times what {} for {} costs".format(*(entry.backend for entry in in_order))
            ratios[text] = entries.ratio_of_products([(above, below), (reference_below, reference_above)], 1, candidates)
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
    verdict = level(ratio) if ratio.verdict is False else None
    parts = statistics.present([verdict, interval(ratio)])
    return f" ({', '.join(parts)})" if parts else ""
