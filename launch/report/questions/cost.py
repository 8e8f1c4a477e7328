"""What each backend costs: time before the clock, memory, communication, energy. Pure."""

import numpy as np

from launch.display import ranks_of
from launch.report import entries, statistics
from launch.report.questions import step
from launch.report.tables import APART, BACKEND, MIB, RANKS, Column, filled, span

QUESTION = "What does each backend cost?"
COLUMNS = (
    BACKEND, RANKS, Column("launch (s)", ".2f"), Column("import (s)", ".2f"), Column("init (s)", ".2f"), Column("load (s)", ".2f"),
    Column("train (s)", ".2f"), Column("evaluate (s)", ".2f"), Column("peak memory per rank (MiB)", ".0f"),
    Column("median step (ms)", ".2f"), Column("step over own 1 rank's (ms)", ".2f"),
)  # fmt: skip
# What a record has only where there was something to measure it with: its column, and what gives it of an entry.
MEASURED = {
    Column("communication exposed (ms)", ".2f"): lambda entry: step.parts(entry).get("communication exposed"),
    Column("energy (J)", ".0f"): lambda entry: entries.typical(entry, "energy_joules"),
}
NOT_MEASURED = "not measured"
STARTUP = ("launch", "import", "init")


def answer(compared):
    """(sentences, tables) of the comparisons; numbers are typical values over the runs that came to their end."""
    sentences, tables = [], []
    everything = [entry for one in compared for entry in one.entries]
    measured = {column: of for column, of in MEASURED.items() if any(of(entry) is not None for entry in everything)}
    columns = (*COLUMNS, *measured)
    for one in compared:
        ran = [entry for entry in one.entries if entry.ok]
        for title, shared in ((one.name, False), (f"{one.name}, {APART}", True)):
            tables += filled(title, columns, [_row(one, entry, measured) for entry in ran if entry.oversubscribed == shared])
        if ran:
            sentences.append(_sentence(one, [entry for entry in ran if entry.ranks == min(entry.ranks for entry in ran)]))
    sentences += [f"{column.name.partition(' (')[0].capitalize()}: {NOT_MEASURED}." for column in MEASURED if column not in measured]
    return sentences, tables


def _sentence(compared, smallest):
    startup = {entry.backend: sum(stages(entry)[name] or 0.0 for name in STARTUP) for entry in smallest}
    memory = {entry.backend: entries.typical(entry, "peak_memory_bytes") / MIB for entry in smallest}
    return (
        f"{compared.name}, {ranks_of(smallest[0].ranks)}: before the clock starts ({', '.join(STARTUP)}) {span(startup, '{:.1f} s')}; "
        f"peak memory per rank {span(memory, '{:.0f} MiB')}."
    )


def stage_seconds(run):
    """Seconds of each stage of a run, in their order; None where it is not known. The first three are before the clock starts."""
    before = {name: run[f"{name}_seconds"] for name in (*STARTUP, "load")}
    return before | {"train": _sum(run["train_seconds"]), "evaluate": _sum(run["eval_seconds"])}


def _sum(seconds):
    known = [one for one in seconds if one is not None]
    return sum(known) if known else None


def stages(entry):
    """The typical seconds of each stage over the runs that came to their end."""
    by_run = [stage_seconds(run) for run in entry.ok]
    known = {name: [stage[name] for stage in by_run if stage[name] is not None] for name in by_run[0]}
    return {name: float(statistics.typical(seconds)) if seconds else None for name, seconds in known.items()}


def median_step_seconds(entry):
    """The typical value over the runs of the median step; None where no step is known."""
    medians = [
        float(np.median(steps)) for run in entry.ok if (steps := [seconds for seconds in run["step_seconds"] if seconds is not None])
    ]
    return float(statistics.typical(medians)) if medians else None


def _row(compared, entry, measured):
    median = median_step_seconds(entry)
    own = compared.entry(entry.backend, 1)
    own_step = median_step_seconds(own) if own else None
    # Under strong scaling a rank's share of the batch shrinks, and with it its step.
    same_work = compared.scaling == "weak" and not entry.oversubscribed and entry.ranks > 1
    return (
        entry.backend,
        entry.ranks,
        *stages(entry).values(),
        entries.typical(entry, "peak_memory_bytes") / MIB,
        1000 * median if median is not None else None,
        1000 * (median - own_step) if same_work and median is not None and own_step is not None else None,
        *(NOT_MEASURED if (value := of(entry)) is None else value for of in measured.values()),
    )
