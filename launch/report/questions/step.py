"""Where the time of a step goes, from the step breakdowns of the records. Pure."""

import numpy as np

from launch.report import entries, epochs, statistics
from launch.report.tables import BACKEND, MB, RANKS, Column, apart, filled
from launch.report.words import ranks_of, span

QUESTION = "Where does the time of a step go?"
OVERHEAD, EXPOSED = "overhead at 1 rank", "exposed communication"
PARTS = ("data wait", "compute", OVERHEAD, EXPOSED)
# The key of OVERHEAD and EXPOSED together.
ADDED = "communication_exposed_seconds"
COLUMNS = (
    BACKEND, RANKS, Column("step in training (ms)", ".2f"), Column("step in breakdown (ms)", ".2f"),
    *(Column(f"{part} (ms)", ".2f", brief=part != PARTS[0]) for part in PARTS),
    Column("overhead, 95 % interval (ms)"), Column("exposed, 95 % interval (ms)", brief=True),
    Column("communication (ms)", ".2f"), Column("sent (MB)", ".2f"),
    Column("bus bandwidth (MB/s)", ".0f"), Column("bus bandwidth, plain all-reduce (MB/s)", ".0f"),
)  # fmt: skip
BUBBLE_COLUMNS = (
    BACKEND, RANKS, Column("stages of a model", "d", brief=True), Column("micro-batches", "d", brief=True),
    Column("bubble, measured (%)", ".0f", brief=True), Column("bubble, in theory (%)", ".0f", brief=True),
)  # fmt: skip


def answer(comparison):
    """(sentences, tables) of a comparison with a step breakdown."""
    broken_down = [entry for entry in comparison.entries if parts(comparison, entry)]
    tables = []
    for title, chosen in apart(comparison.name, broken_down):
        tables += filled(title, COLUMNS, [_row(comparison, entry) for entry in chosen])
        bubble_rows = [_bubble_row(entry, bubbles) for entry in chosen if (bubbles := _bubbles(entry))]
        tables += filled(f"Pipeline bubble: {title}", BUBBLE_COLUMNS, bubble_rows)
    return _sentences(comparison, [entry for entry in broken_down if not entry.oversubscribed]), tables


def parts(comparison, entry):
    """{part: milliseconds} of an entry's step: mean over the ranks, typical value over the runs; empty without a step breakdown.

    What a backend adds to a step at 1 rank, where nothing is exchanged, is its OVERHEAD at every size. EXPOSED is what more ranks add to
    that, and all of it where the backend did not run at 1 rank.
    """
    if not _breakdowns(entry):
        return {}
    single_rank = comparison.entry(entry.backend, 1)
    overhead = _typical(single_rank, ADDED) if single_rank else None
    seconds = [_typical(entry, key) for key in ("data_wait_seconds", "compute_seconds")]
    seconds += [overhead, _typical(entry, ADDED) - (overhead or 0.0)]
    return {part: None if value is None else 1000 * value for part, value in zip(PARTS, seconds, strict=True)}


def overhead_interval(comparison, entry):
    """The 95 % interval of OVERHEAD in milliseconds; None where the backend has fewer than 3 runs at 1 rank."""
    single_rank = comparison.entry(entry.backend, 1)
    values = statistics.present(map(seconds_of(ADDED), single_rank.ok)) if single_rank else []
    return _around(parts(comparison, entry).get(OVERHEAD), statistics.difference_reach(values, [0.0] * len(values), paired=True))


def exposed_interval(comparison, entry):
    """The 95 % interval of EXPOSED in milliseconds; None at 1 rank, and where either size has fewer than 3 runs."""
    values = entries.run_values(entry, comparison.entry(entry.backend, 1), seconds_of(ADDED))
    reach = None if values is None or entry.num_ranks == 1 else statistics.difference_reach(*values)
    return _around(parts(comparison, entry).get(EXPOSED), reach)


def _around(milliseconds, reach_seconds):
    return None if reach_seconds is None else (milliseconds - 1000 * reach_seconds, milliseconds + 1000 * reach_seconds)


def seconds_of(key):
    """Returns a function of a record: the mean over the ranks of its step breakdown's `key`, None without a step breakdown."""
    return lambda record: record.step_breakdown and float(np.mean(getattr(record.step_breakdown, key)))


def exposed_percent(comparison, entry):
    """EXPOSED as a share of an entry's step; None without a step breakdown, and where its interval has 0 or there is none."""
    milliseconds, interval = parts(comparison, entry), exposed_interval(comparison, entry)
    if not interval or interval[0] <= 0:
        return None
    return 100 * milliseconds[EXPOSED] / sum(statistics.present(milliseconds.values()))


def _breakdowns(entry):
    return [record.step_breakdown for record in entry.ok if record.step_breakdown]


def _typical(entry, key):
    """A value of an entry's step breakdowns: mean over the ranks, typical value over the runs; None where unknown."""
    values = [getattr(breakdown, key) for breakdown in _breakdowns(entry)]
    by_rank = [statistics.present(value if isinstance(value, list) else [value]) for value in values]
    return statistics.typical_or_none(np.mean(of_ranks) for of_ranks in by_rank if of_ranks)


def _bubbles(entry):
    """The bubbles of an entry's runs, as frameworks/shared/pytorch/pipeline.py measured them; empty unless it is a pipeline."""
    return [breakdown.library for breakdown in _breakdowns(entry) if "bubble_fraction" in breakdown.library]


def _bubble_row(entry, bubbles):
    """A row of BUBBLE_COLUMNS; measured is the typical value over the runs."""
    measured = float(statistics.typical([bubble["bubble_fraction"] for bubble in bubbles]))
    first = bubbles[0]
    theory = first["bubble_fraction_in_theory"]
    return entry.backend, entry.num_ranks, first["num_stages"], first["num_microbatches"], 100 * measured, 100 * theory


def _row(comparison, entry):
    trained = statistics.typical_or_none(epochs.step_seconds(record) for record in entry.ok if record.step_breakdown)
    seconds = [trained, _typical(entry, "step_seconds"), _typical(entry, "communication_seconds")]
    in_training, in_breakdown, communication = (None if value is None else 1000 * value for value in seconds)
    sent = [sum(operation.num_bytes for operation in breakdown.operations.values()) for breakdown in _breakdowns(entry)]
    intervals = overhead_interval(comparison, entry), exposed_interval(comparison, entry)
    bandwidths = [_typical(entry, key) for key in ("bus_bytes_per_second", "plain_bus_bytes_per_second")]
    return (
        entry.backend, entry.num_ranks, in_training, in_breakdown, *parts(comparison, entry).values(),
        *(interval and "{:.1f} to {:.1f}".format(*interval) for interval in intervals), communication,
        float(statistics.typical(sent)) / MB, *(None if bandwidth is None else bandwidth / MB for bandwidth in bandwidths),
    )  # fmt: skip


def _sentences(comparison, fair):
    """The share of exposed communication at each size from 2 ranks on."""
    shares_of = {}
    for entry in fair:
        if (share := exposed_percent(comparison, entry)) is not None:
            shares_of.setdefault(entry.num_ranks, {})[entry.backend] = share
    return [
        f"{comparison.name}, {ranks_of(size)}: {EXPOSED} is {span(shares, '{:.0f} %')} of a step."
        for size, shares in sorted(shares_of.items())
    ]
