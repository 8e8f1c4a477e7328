"""Where the time of a step goes, by the accounts of the runs that have one. Pure."""

import numpy as np

from launch.display import ranks_of
from launch.report import statistics
from launch.report.tables import APART, BACKEND, RANKS, Column, filled, span

QUESTION = "Where does the time of a step go?"
MB = 10**6
PARTS = {"data wait": "data_wait_seconds", "compute": "compute_seconds", "communication exposed": "communication_exposed_seconds"}
COLUMNS = (
    BACKEND, RANKS, Column("step in training (ms)", ".2f"), Column("step (ms)", ".2f"),
    *(Column(f"{part} (ms)", ".2f") for part in PARTS), Column("communication (ms)", ".2f"), Column("sent (MB)", ".2f"),
    Column("bus bandwidth (MB/s)", ".0f"), Column("of a plain all-reduce (MB/s)", ".0f"),
)  # fmt: skip


def answer(compared):
    """(sentences, tables) of the comparisons in which a run has an account."""
    sentences, tables = [], []
    for one in compared:
        known = [(entry, found) for entry in one.entries if (found := parts(entry))]
        for title, shared in ((one.name, False), (f"{one.name}, {APART}", True)):
            tables += filled(title, COLUMNS, [_row(entry, found) for entry, found in known if entry.oversubscribed == shared])
        sentences += _sentences(one.name, [(entry, found) for entry, found in known if not entry.oversubscribed and entry.ranks > 1])
    return sentences, tables


def parts(entry):
    """{part: milliseconds} of an entry's step, typical over its runs of the mean over their ranks; empty where there is no account."""
    return {part: 1000 * value for part, key in PARTS.items() if (value := _typical(entry, key)) is not None}


def _runs(entry):
    """The runs of an entry that have an account."""
    return [run for run in entry.ok if run.get("account")]


def _typical(entry, key):
    """The typical value of what the accounts of an entry have under a key, of ranks their mean; None where nothing is known."""
    found = [run["account"][key] for run in _runs(entry)]
    known = [values for one in found if (values := [value for value in (one if isinstance(one, list) else [one]) if value is not None])]
    return float(statistics.typical([float(np.mean(values)) for values in known])) if known else None


def _sent_bytes(entry):
    operations = [run["account"]["operations"].values() for run in _runs(entry)]
    return float(statistics.typical([sum(one["num_bytes"] for one in each) for each in operations]))


def _trained_milliseconds(entry):
    """What a step of the training itself took, on the clock: typical over the runs of the median epoch's mean; None where unknown."""
    epochs = [(run, [seconds for seconds in run["train_seconds"] if seconds is not None]) for run in _runs(entry)]
    means = [
        np.median(known) * len(run["train_seconds"]) / len(run["step_seconds"]) for run, known in epochs if known and run["step_seconds"]
    ]
    return 1000 * float(statistics.typical(means)) if means else None


def _row(entry, found):
    communication, *bandwidths = (
        _typical(entry, key) for key in ("communication_seconds", "bus_bytes_per_second", "plain_bus_bytes_per_second")
    )
    return (
        entry.backend,
        entry.ranks,
        _trained_milliseconds(entry),
        1000 * _typical(entry, "step_seconds"),
        *found.values(),
        None if communication is None else 1000 * communication,
        _sent_bytes(entry) / MB,
        *(None if bandwidth is None else bandwidth / MB for bandwidth in bandwidths),
    )


def _sentences(name, known):
    """What communication adds at each size."""
    for size in sorted({entry.ranks for entry, _ in known}):
        of_size = {entry.backend: found for entry, found in known if entry.ranks == size}
        shares = {backend: 100 * found["communication exposed"] / sum(found.values()) for backend, found in of_size.items()}
        yield f"{name}, at {ranks_of(size)}: communication that nothing hides takes {span(shares, '{:.0f} %')} of a step."
