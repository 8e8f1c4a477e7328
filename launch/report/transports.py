"""The library's part and the transport's in a difference of seconds per epoch, where a library ran over two transports. Pure."""

import itertools

from launch.report import entries
from launch.report.statistics import MIN_RUNS_CONFIDENT
from launch.report.words import level, uncertainty

NAMES = {"mpi": "MPI", "gloo": "Gloo", "nccl": "NCCL"}


def library_of(entry):
    """The name of an entry's backend without its transport."""
    return entry.backend.removesuffix(f"@{entry.transport}")


def sentences(at, candidates):
    """Sentences on entries of one size, the fastest first, each comparable with each, that ran over two transports.

    Libraries are compared with the fastest that ran over two; transports with the faster one of that library. Where none ran over two,
    the sentence says so.
    """
    over = {}
    for entry in candidates:
        if entry.transport:
            over.setdefault(entry.transport, {})[library_of(entry)] = entry
    libraries = list(dict.fromkeys(map(library_of, candidates)))
    moved = [library for library in libraries if sum(library in entry_of for entry_of in over.values()) > 1]
    if not moved and len(over) > 1:
        return [f"{at}: what is the library's part and what the transport's is not known, since no library ran over two transports."]
    if not moved:
        return []
    reference = moved[0]
    fastest, *slower = [entry.transport for entry in candidates if library_of(entry) == reference]
    by_library = {
        f"over {NAMES[transport]} {library} takes {{}} times {reference}'s": (entry, over[transport][reference])
        for transport in (fastest, *slower)
        for library, entry in over[transport].items()
        if library != reference
    }
    by_transport = {
        f"under {library} {NAMES[transport]} takes {{}} times {NAMES[fastest]}'s": (over[transport][library], over[fastest][library])
        for library in moved
        for transport in slower
        if library in over[transport] and library in over[fastest]
    }
    by_both = {
        f"{NAMES[transport]} for {NAMES[fastest]} costs {library} {{}} times what it costs {reference}": (
            over[transport][library], over[fastest][library], over[transport][reference], over[fastest][reference],
        )
        for library, transport in itertools.product(moved[1:], slower)
        if library in over[transport] and library in over[fastest]
    }  # fmt: skip
    parts = (("library's part", by_library), ("transport's part", by_transport), ("part of both together", by_both))
    sentences_of_parts = [_sentence(f"{at}, seconds per epoch, the {part}", compared, candidates) for part, compared in parts]
    return [sentence for sentence in sentences_of_parts if sentence]


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
