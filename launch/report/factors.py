"""A difference of seconds per epoch taken apart into framework, library and transport. Pure."""

import itertools

from common.backends import declaration_of, file_of
from launch.report import entries
from launch.report.statistics import MIN_RUNS_CONFIDENT
from launch.report.words import level, uncertainty

# The library of a backend that needs none; others without a transport have records from before it was recorded.
ALONE = "none"
FACTORS = ("framework", "library", "transport")


def factors_of(entry):
    """The framework, library and transport of an entry. A variant, such as a ZeRO stage, is a library of its own."""
    name = entry.backend.removesuffix(f"@{entry.transport}")
    declaration = declaration_of(name)
    library = declaration.library or file_of(name)
    return declaration.framework, library + name.removeprefix(file_of(name)), entry.transport


def sentences(at, candidates):
    """Sentences on entries of one size, the fastest first, each comparable with each: those that differ in one factor alone.

    Each is compared with the fastest that has its other factors. Where transports change only with the library, a sentence says so.
    At 1 rank nothing goes over a transport.
    """
    has_exchange = bool(candidates) and candidates[0].num_ranks > 1
    cells = {factors_of(entry): entry for entry in candidates if entry.transport or declaration_of(entry.backend).library == ALONE}
    texts = []
    for number, factor in enumerate(FACTORS if has_exchange else FACTORS[:-1]):
        pairs = {
            f"{entry.backend} takes {{}} times {fastest.backend}'s": (entry, fastest)
            for fastest, *slower in _groups(cells, lambda cell, number=number: cell[:number] + cell[number + 1 :])
            for entry in slower
        }
        texts.append(_sentence(f"{at}, seconds per epoch, the {factor}'s part", pairs, candidates))
    if has_exchange:
        texts.append(_sentence(f"{at}, seconds per epoch, library and transport together", _interactions(cells), candidates))
        if not texts[2] and len({transport for _, _, transport in cells} - {None}) > 1:
            texts.append(f"{at}: the transport's part is not known, since no library ran over two.")
    return [sentence for sentence in texts if sentence]


def _groups(cells, key):
    """The entries in lists, those whose factors have the same key together, if there are two or more."""
    groups = {}
    for cell, entry in cells.items():
        groups.setdefault(key(cell), []).append(entry)
    return [group for group in groups.values() if len(group) > 1]


def _interactions(cells):
    """{text around a ratio: the four entries of it} of two libraries that both ran over the same two transports."""
    compared = {}
    for (faster, slower, *_), second in itertools.combinations(_groups(cells, lambda cell: cell[:2]), 2):
        over = {entry.transport: entry for entry in second}
        if {faster.transport, slower.transport} <= over.keys():
            entries_of_ratio = over[slower.transport], over[faster.transport], slower, faster
            names = [entry.backend for entry in entries_of_ratio]
            compared["{} for {} costs {{}} times what {} for {} costs".format(*names)] = entries_of_ratio
    return compared


def _sentence(beginning, compared, candidates):
    """A sentence on {text around a ratio: (entry, the one it is compared with), or four for a ratio of two ratios}; None without any."""
    texts, few = [], ""
    for text, of_ratio in compared.items():
        ratio = entries.epoch_ratio(*of_ratio, candidates) if len(of_ratio) == 2 else entries.ratio_of_epoch_ratios(*of_ratio)
        if ratio is None:
            continue
        verdict = f"{level(ratio)}, " if ratio.verdict is False else ""
        texts.append(f"{text.format(f'{ratio.value:.2f}')} ({verdict}{uncertainty(ratio)})")
        few = f"; a verdict takes {MIN_RUNS_CONFIDENT} repeats" if ratio.verdict is None else few
    return f"{beginning}: {', '.join(texts)}{few}." if texts else None
