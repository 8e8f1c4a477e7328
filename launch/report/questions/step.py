"""Where the time of a step goes, from the step breakdowns of the records. Pure."""

import numpy as np

from launch.report import statistics
from launch.report.tables import BACKEND, OVERSUBSCRIBED, RANKS, Column, filled
from launch.report.words import ranks_of, span

QUESTION = "Where does the time of a step go?"
MB = 10**6
PARTS = {"data wait": "data_wait_seconds", "compute": "compute_seconds", "exposed communication": "communication_exposed_seconds"}
COLUMNS = (
    BACKEND, RANKS, Column("step in training (ms)", ".2f"), Column("step in breakdown (ms)", ".2f"),
    *(Column(f"{part} (ms)", ".2f", brief=True) for part in PARTS), Column("communication (ms)", ".2f"), Column("sent (MB)", ".2f"),
    Column("bus bandwidth (MB/s)", ".0f"), Column("bus bandwidth, plain all-reduce (MB/s)", ".0f"),
)  # fmt: skip
BUBBLE_COLUMNS = (
    BACKEND, RANKS, Column("stages of a model", "d"), Column("micro-batches", "d"), Column("bubble, measured (%)", ".0f"),
    Column("bubble, in theory (%)", ".0f"),
)  # fmt: skip


def answer(compared):
    """(sentences, tables) of the comparisons with a step breakdown."""
    sentences, tables = [], []
    for one in compared:
        known = [(entry, found) for entry in one.entries if (found := parts(entry))]
        for title, shared in ((one.name, False), (f"{one.name}, {OVERSUBSCRIBED}", True)):
            tables += filled(title, COLUMNS, [_row(entry, found) for entry, found in known if entry.oversubscribed == shared])
            pipelined = [entry for entry, _ in known if entry.oversubscribed == shared and _bubbles(entry)]
            tables += filled(f"Pipeline bubble: {title}", BUBBLE_COLUMNS, [_bubble_row(entry) for entry in pipelined])
        sentences += _sentences(one.name, [(entry, found) for entry, found in known if not entry.oversubscribed and entry.num_ranks > 1])
    return sentences, tables


def parts(entry):
    """{part: milliseconds} of an entry's step: mean over the ranks, typical value over the runs; empty without a step breakdown."""
    return {part: 1000 * value for part, key in PARTS.items() if (value := _typical(entry, key)) is not None}


def _runs(entry):
    """The runs of an entry that have a step breakdown."""
    return [run for run in entry.ok if run.get("step_breakdown")]


def _typical(entry, key):
    """A value of an entry's step breakdowns: mean over the ranks, typical value over the runs; None where unknown."""
    found = [run["step_breakdown"][key] for run in _runs(entry)]
    known = [values for one in found if (values := [value for value in (one if isinstance(one, list) else [one]) if value is not None])]
    return float(statistics.typical([float(np.mean(values)) for values in known])) if known else None


def _bubbles(entry):
    """The bubbles of an entry's runs, as frameworks/shared/pipeline.py measured them; empty unless it is a pipeline."""
    return [found for run in _runs(entry) if "bubble_fraction" in (found := run["step_breakdown"]["library"])]


def _bubble_row(entry):
    """A row of BUBBLE_COLUMNS; measured is the typical value over the runs."""
    found = _bubbles(entry)
    measured = float(statistics.typical([one["bubble_fraction"] for one in found]))
    theory = found[0]["bubble_fraction_in_theory"]
    return entry.backend, entry.num_ranks, found[0]["num_stages"], found[0]["num_microbatches"], 100 * measured, 100 * theory


def _sent_bytes(entry):
    operations = [run["step_breakdown"]["operations"].values() for run in _runs(entry)]
    return float(statistics.typical([sum(one["num_bytes"] for one in each) for each in operations]))


def _trained_milliseconds(entry):
    """The step in training: mean of the median epoch, typical value over the runs; None where unknown."""
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
        entry.num_ranks,
        _trained_milliseconds(entry),
        1000 * _typical(entry, "step_seconds"),
        *found.values(),
        None if communication is None else 1000 * communication,
        _sent_bytes(entry) / MB,
        *(None if bandwidth is None else bandwidth / MB for bandwidth in bandwidths),
    )


def _sentences(name, known):
    """The share of exposed communication at each size."""
    for size in sorted({entry.num_ranks for entry, _ in known}):
        of_size = {entry.backend: found for entry, found in known if entry.num_ranks == size}
        shares = {backend: 100 * found["exposed communication"] / sum(found.values()) for backend, found in of_size.items()}
        yield f"{name}, {ranks_of(size)}: exposed communication is {span(shares, '{:.0f} %')} of a step."
