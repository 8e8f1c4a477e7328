"""The library's part and the transport's in a difference of seconds per epoch, where a library ran over two transports. Pure."""

from launch.report import entries
from launch.report.statistics import MIN_RUNS_CONFIDENT
from launch.report.words import uncertainty

NAMES = {"mpi": "MPI", "gloo": "Gloo", "nccl": "NCCL"}


def library_of(entry):
    """The name of an entry's backend without its transport."""
    return entry.backend.removesuffix(f"@{entry.transport}")


def sentences(at, candidates):
    """Sentences on entries of one size, the fastest first, each comparable with each, if a library ran over two transports.

    Libraries are compared with the fastest that ran over two; transports with the faster one of that library.
    """
    over = {}
    for entry in candidates:
        if entry.transport:
            over.setdefault(entry.transport, {})[library_of(entry)] = entry
    libraries = list(dict.fromkeys(map(library_of, candidates)))
    moved = [library for library in libraries if sum(library in entry_of for entry_of in over.values()) > 1]
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
    parts = (("library", by_library), ("transport", by_transport))
    return [_sentence(f"{at}, seconds per epoch, the {part}'s part", pairs, candidates) for part, pairs in parts if pairs]


def _sentence(beginning, pairs, candidates):
    """A sentence on {text around a ratio: (entry, the one it is compared with)}."""
    texts, few = [], ""
    for text, pair in pairs.items():
        ratio = entries.epoch_ratio(*pair, candidates)
        level = "no difference shown, " if ratio.verdict is False else ""
        texts.append(f"{text.format(f'{ratio.value:.2f}')} ({level}{uncertainty(ratio)})")
        few = f"; a verdict takes {MIN_RUNS_CONFIDENT} repeats" if ratio.verdict is None else few
    return f"{beginning}: {', '.join(texts)}{few}."
