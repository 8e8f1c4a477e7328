"""Where the time of a step goes, from the step breakdowns of the records. Pure."""

import numpy as np

from launch.report import epochs, statistics
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


def answer(comparisons):
    """(sentences, tables) of the comparisons with a step breakdown."""
    sentences, tables = [], []
    for comparison in comparisons:
        broken_down = [(entry, milliseconds) for entry in comparison.entries if (milliseconds := parts(entry))]
        for title, shared in ((comparison.name, False), (f"{comparison.name}, {OVERSUBSCRIBED}", True)):
            tables += filled(
                title, COLUMNS, [_row(entry, milliseconds) for entry, milliseconds in broken_down if entry.oversubscribed == shared]
            )
            pipelined = [entry for entry, _ in broken_down if entry.oversubscribed == shared and _bubbles(entry)]
            tables += filled(f"Pipeline bubble: {title}", BUBBLE_COLUMNS, [_bubble_row(entry) for entry in pipelined])
        sentences += _sentences(comparison.name, broken_down)
    return sentences, tables


def parts(entry):
    """{part: milliseconds} of an entry's step: mean over the ranks, typical value over the runs; empty without a step breakdown."""
    return {part: 1000 * value for part, key in PARTS.items() if (value := _typical(entry, key)) is not None}


def _records(entry):
    """The records of an entry that have a step breakdown."""
    return [record for record in entry.ok if record.step_breakdown]


def _typical(entry, key):
    """A value of an entry's step breakdowns: mean over the ranks, typical value over the runs; None where unknown."""
    by_record = [getattr(record.step_breakdown, key) for record in _records(entry)]
    by_rank = [[value for value in (values if isinstance(values, list) else [values]) if value is not None] for values in by_record]
    return statistics.typical_or_none(np.mean(values) for values in by_rank if values)


def _bubbles(entry):
    """The bubbles of an entry's runs, as frameworks/shared/pytorch/pipeline.py measured them; empty unless it is a pipeline."""
    return [bubble for record in _records(entry) if "bubble_fraction" in (bubble := record.step_breakdown.library)]


def _bubble_row(entry):
    """A row of BUBBLE_COLUMNS; measured is the typical value over the runs."""
    bubbles = _bubbles(entry)
    measured = float(statistics.typical([bubble["bubble_fraction"] for bubble in bubbles]))
    first = bubbles[0]
    theory = first["bubble_fraction_in_theory"]
    return entry.backend, entry.num_ranks, first["num_stages"], first["num_microbatches"], 100 * measured, 100 * theory


def _sent_bytes(entry):
    operations = [record.step_breakdown.operations.values() for record in _records(entry)]
    return float(statistics.typical([sum(operation.num_bytes for operation in of_record) for of_record in operations]))


def _row(entry, milliseconds):
    trained = statistics.typical_or_none(map(epochs.step_seconds, _records(entry)))
    communication, *bandwidths = (
        _typical(entry, key) for key in ("communication_seconds", "bus_bytes_per_second", "plain_bus_bytes_per_second")
    )
    return (
        entry.backend,
        entry.num_ranks,
        None if trained is None else 1000 * trained,
        1000 * _typical(entry, "step_seconds"),
        *milliseconds.values(),
        None if communication is None else 1000 * communication,
        _sent_bytes(entry) / MB,
        *(None if bandwidth is None else bandwidth / MB for bandwidth in bandwidths),
    )


def _sentences(name, broken_down):
    """The share of exposed communication at each size from 2 ranks on that is not oversubscribed."""
    fair = [(entry, milliseconds) for entry, milliseconds in broken_down if not entry.oversubscribed]
    for size in sorted({entry.num_ranks for entry, _ in fair} - {1}):
        of_size = {entry.backend: milliseconds for entry, milliseconds in fair if entry.num_ranks == size}
        shares = {backend: 100 * step["exposed communication"] / sum(step.values()) for backend, step in of_size.items()}
        yield f"{name}, {ranks_of(size)}: exposed communication is {span(shares, '{:.0f} %')} of a step."
