"""What each backend costs: what to choose by, startup time, memory, communication, energy. Pure."""

import numpy as np

from launch.report import entries, statistics
from launch.report.questions import choice
from launch.report.tables import BACKEND, MIB, NOT_MEASURED, RANKS, Column, apart, filled
from launch.report.words import ranks_of, span

QUESTION = "What does each backend cost?"
COLUMNS = (
    BACKEND, RANKS, Column("launch (s)", ".2f"), Column("import (s)", ".2f"), Column("init (s)", ".2f"), Column("load (s)", ".2f"),
    Column("train (s)", ".2f"), Column("evaluate (s)", ".2f"), Column("peak memory per rank (MiB)", ".0f", brief=True),
    Column("median step (ms)", ".2f"), Column("step increase over own 1 rank (ms)", ".2f"),
)  # fmt: skip
ENERGY = Column("energy (J)", ".0f")
# Columns of values that only some records have, and the value of an entry; those of GPUs are on GPUs only.
MEASURED = {
    Column("parameters (MiB)", ".2f"): lambda entry: held(entry, "parameters"),
    Column("gradients (MiB)", ".2f"): lambda entry: held(entry, "gradients"),
    Column("optimizer state (MiB)", ".2f"): lambda entry: held(entry, "optimizer_state"),
    Column("peak GPU memory allocated (MiB)", ".0f"): lambda entry: on_gpu(entry, "peak_allocated_bytes"),
    Column("reserved (MiB)", ".0f"): lambda entry: on_gpu(entry, "peak_reserved_bytes"),
    Column("used on the GPU (MiB)", ".0f"): lambda entry: on_gpu(entry, "used_bytes"),
    ENERGY: lambda entry: entries.typical(entry, "energy_joules"),
}
STARTUP = ("launch", "import", "init")


def answer(comparisons):
    """(sentences, tables) of the comparisons; numbers are typical values over the completed runs."""
    sentences, tables = [], [table for comparison in comparisons for table in choice.tables(comparison)]
    all_entries = [entry for comparison in comparisons for entry in comparison.entries]
    measured = {column: value_of for column, value_of in MEASURED.items() if any(value_of(entry) is not None for entry in all_entries)}
    for comparison in comparisons:
        completed = [entry for entry in comparison.entries if entry.ok]
        for title, chosen in apart(comparison.name, completed):
            tables += filled(title, (*COLUMNS, *measured), [_row(comparison, entry, measured) for entry in chosen])
        if completed:
            smallest = min(entry.num_ranks for entry in completed)
            sentences.append(_sentence(comparison.name, [entry for entry in completed if entry.num_ranks == smallest]))
    if ENERGY not in measured:
        sentences.append(f"Energy: {NOT_MEASURED}.")
    return sentences, tables


def _sentence(name, smallest):
    startup = {entry.backend: sum(stages(entry)[stage] or 0.0 for stage in STARTUP) for entry in smallest}
    memory = {entry.backend: peak_mib(entry) for entry in smallest}
    return (
        f"{name}, {ranks_of(smallest[0].num_ranks)}: startup ({', '.join(STARTUP)}) takes {span(startup, '{:.1f} s')}; "
        f"peak memory per rank is {span(memory, '{:.0f} MiB')}."
    )


def stages(entry):
    """The typical seconds of each stage over the completed runs, in order; None where unknown. STARTUP precedes the timed part."""
    seconds = {stage: entries.typical(entry, f"{stage}_seconds") for stage in (*STARTUP, "load")}
    for stage, key in (("train", "train_seconds"), ("evaluate", "eval_seconds")):
        by_run = [statistics.present(getattr(record, key)) for record in entry.ok]
        seconds[stage] = statistics.typical_or_none(sum(by_epoch) for by_epoch in by_run if by_epoch)
    return seconds


def peak_mib(entry):
    """The typical peak memory per rank over the completed runs."""
    return entries.typical(entry, "peak_memory_bytes") / MIB


def median_step_seconds(entry):
    """The typical value over the runs of the median step; None where no step time is known."""
    by_run = [statistics.present(record.step_seconds) for record in entry.ok]
    return statistics.typical_or_none(np.median(steps) for steps in by_run if steps)


def held(entry, part):
    """MiB of parameters, gradients or optimizer state at the point of a step and on the rank where they are most; None if not known."""
    points = [point for record in entry.ok if record.tensor_bytes_by_rank for point in vars(record.tensor_bytes_by_rank).values()]
    return max((size / MIB for point in points for size in getattr(point, part)), default=None)


def on_gpu(entry, key):
    """MiB of GPU memory on the rank with most, the largest of the runs; None on CPUs, and where it is not known."""
    of_runs = [getattr(memory, key) for record in entry.ok if (memory := record.gpu_memory_by_rank)]
    return max((size / MIB for sizes in of_runs for size in sizes if size is not None), default=None)


def _row(comparison, entry, measured):
    median = median_step_seconds(entry)
    single_rank = comparison.entry(entry.backend, 1)
    single_rank_median = median_step_seconds(single_rank) if single_rank else None
    # Under strong scaling the batch per rank shrinks with the number of ranks, and so does the step.
    same_work = entry.batch_ratio == entry.num_ranks > 1 and not entry.oversubscribed
    return (
        entry.backend,
        entry.num_ranks,
        *stages(entry).values(),
        peak_mib(entry),
        1000 * median if median is not None else None,
        1000 * (median - single_rank_median) if same_work and median is not None and single_rank_median is not None else None,
        *(NOT_MEASURED if (value := value_of(entry)) is None else value for value_of in measured.values()),
    )
