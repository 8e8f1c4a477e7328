"""A difference of seconds per epoch taken apart into framework, library and transport. Pure."""

import itertools
from operator import attrgetter

from common.backends import declaration_of, file_of
from launch.report import entries, statistics
from launch.report.statistics import MIN_RUNS_CONFIDENT
from launch.report.words import interval, level, runs_against

# The library of a backend that needs none; others without a transport have records from before it was recorded.
ALONE = "none"
FACTORS = ("framework", "library", "transport")
REMARK = "ddp over MPI blocks the backward pass, and MPI within a node is shared memory"


def factors_of(entry):
    """The framework, library and transport of an entry. A variant, such as a ZeRO stage, is a library of its own."""
    name = entry.backend.removesuffix(f"@{entry.transport}")
    declaration = declaration_of(name)
    library = declaration.library or file_of(name)
    return declaration.framework, library + name.removeprefix(file_of(name)), entry.transport


def sentences(at, candidates):
    """Sentences on entries of one size, the fastest first, each comparable with each: those that differ in one factor alone.

    Each is compared with the fastest that has its other factors. The last sentence names the libraries that did not run over each of the
    transports. At 1 rank nothing goes over a transport.
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
        remark = (
            f"; {REMARK}" if factor == "transport" and any("mpi" in map(attrgetter("transport"), pair) for pair in pairs.values()) else ""
        )
        texts.append(_sentence(at, f"the {factor}'s part", pairs, candidates, remark))
    if has_exchange:
        texts += (
            _sentence(at, "library and transport together", _interactions(cells), candidates),
            _not_run(at, cells),
        )
    return [sentence for sentence in texts if sentence]


def _not_run(at, cells):
    """The sentence on which libraries of which frameworks lack a transport that others have; None where none does."""
    transports = sorted({transport for *_, transport in cells if transport})
    name_of = {cell[:2]: entry.backend.removesuffix(f"@{entry.transport}") for cell, entry in cells.items() if entry.transport}
    lacking = [f"{name_of[cell]} over {transport}" for cell in name_of for transport in transports if (*cell, transport) not in cells]
    return f"{at}: not run: {', '.join(sorted(lacking))}." if lacking else None


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


def _sentence(at, subject, compared, candidates, remark=""):
    """A sentence on {text around a ratio: (entry, the one it is compared with), or four for a ratio of two ratios}; None without any."""
    ratios = {
        text: (entries.epoch_ratio if len(of) == 2 else entries.ratio_of_epoch_ratios)(*of, candidates) for text, of in compared.items()
    }
    ratios = {text: ratio for text, ratio in ratios.items() if ratio}
    if not ratios:
        return None
    runs = " or ".join(dict.fromkeys(runs_against(ratio.num_above, ratio.num_below, ratio.paired) for ratio in ratios.values()))
    told = ", ".join(f"{text.format(f'{ratio.value:.2f}')}{_in_brackets(ratio)}" for text, ratio in ratios.items())
    few = f"; a verdict takes {MIN_RUNS_CONFIDENT} repeats" if any(ratio.verdict is None for ratio in ratios.values()) else ""
    return f"{at}, seconds per epoch, 95 % intervals, {runs}, {subject}: {told}{remark}{few}."


def _in_brackets(ratio):
    verdict = level(ratio) if ratio.verdict is False else None
    parts = statistics.present([verdict, interval(ratio)])
    return f" ({', '.join(parts)})" if parts else ""
