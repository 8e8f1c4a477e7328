"""What each backend costs: what to choose by, startup time, memory, communication, energy. Pure."""

import numpy as np

from launch.report import entries, statistics
from launch.report.questions import choice, step
from launch.report.tables import BACKEND, MIB, OVERSUBSCRIBED, RANKS, Column, filled
from launch.report.words import ranks_of, span

QUESTION = "What does each backend cost?"
COLUMNS = (
    BACKEND, RANKS, Column("launch (s)", ".2f"), Column("import (s)", ".2f"), Column("init (s)", ".2f"), Column("load (s)", ".2f"),
    Column("train (s)", ".2f"), Column("evaluate (s)", ".2f"), Column("peak memory per rank (MiB)", ".0f", brief=True),
    Column("median step (ms)", ".2f", brief=True), Column("step increase over own 1 rank (ms)", ".2f"),
)  # fmt: skip
# Columns of values that only some records have, and the value of an entry. HELD: those of GPUs are on GPUs only.
HELD = {
    Column("parameters (MiB)", ".2f"): lambda entry: held(entry, "parameters"),
    Column("gradients (MiB)", ".2f"): lambda entry: held(entry, "gradients"),
    Column("optimizer state (MiB)", ".2f"): lambda entry: held(entry, "optimizer_state"),
    Column("peak GPU memory allocated (MiB)", ".0f"): lambda entry: on_gpu(entry, "peak_allocated_bytes"),
    Column("reserved (MiB)", ".0f"): lambda entry: on_gpu(entry, "peak_reserved_bytes"),
    Column("used on the GPU (MiB)", ".0f"): lambda entry: on_gpu(entry, "used_bytes"),
}
MEASURED = {
    Column("exposed communication (ms)", ".2f"): lambda entry: step.parts(entry).get("exposed communication"),
    Column("energy (J)", ".0f"): lambda entry: entries.typical(entry, "energy_joules"),
}
NOT_MEASURED = "not measured"
STARTUP = ("launch", "import", "init")


def answer(comparisons):
    """(sentences, tables) of the comparisons; numbers are typical values over the completed runs."""
    sentences, tables = [], [table for comparison in comparisons for table in choice.tables(comparison)]
    all_entries = [entry for comparison in comparisons for entry in comparison.entries]
    measured = {
        column: value_of for column, value_of in (HELD | MEASURED).items() if any(value_of(entry) is not None for entry in all_entries)
    }
    columns = (*COLUMNS, *measured)
    for comparison in comparisons:
        ran = [entry for entry in comparison.entries if entry.ok]
        for title, shared in ((comparison.name, False), (f"{comparison.name}, {OVERSUBSCRIBED}", True)):
            tables += filled(title, columns, [_row(comparison, entry, measured) for entry in ran if entry.oversubscribed == shared])
        if ran:
            sentences.append(_sentence(comparison, [entry for entry in ran if entry.num_ranks == min(entry.num_ranks for entry in ran)]))
    sentences += [f"{column.name.partition(' (')[0].capitalize()}: {NOT_MEASURED}." for column in MEASURED if column not in measured]
    return sentences, tables


def _sentence(comparison, smallest):
    startup = {entry.backend: sum(stages(entry)[name] or 0.0 for name in STARTUP) for entry in smallest}
    memory = {entry.backend: entries.typical(entry, "peak_memory_bytes") / MIB for entry in smallest}
    return (
        f"{comparison.name}, {ranks_of(smallest[0].num_ranks)}: startup ({', '.join(STARTUP)}) takes {span(startup, '{:.1f} s')}; "
        f"peak memory per rank is {span(memory, '{:.0f} MiB')}."
    )


def stage_seconds(record):
    """Seconds of each stage of a run, in order; None where unknown. The first three precede the timed part."""
    before = {name: getattr(record, f"{name}_seconds") for name in (*STARTUP, "load")}
    return before | {"train": _sum(record.train_seconds), "evaluate": _sum(record.eval_seconds)}


def _sum(seconds):
    measured = statistics.present(seconds)
    return sum(measured) if measured else None


def stages(entry):
    """The typical seconds of each stage over the completed runs."""
    by_run = [stage_seconds(record) for record in entry.ok]
    return {name: statistics.typical_or_none(stage[name] for stage in by_run) for name in by_run[0]}


def median_step_seconds(entry):
    """The typical value over the runs of the median step; None where no step time is known."""
    by_run = [statistics.present(record.step_seconds) for record in entry.ok]
    return statistics.typical_or_none(np.median(steps) for steps in by_run if steps)


def held(entry, what):
    """MiB of parameters, gradients or optimizer state at the point of a step and on the rank where they are most; None if not known."""
    counted = [record.tensor_bytes_by_rank for record in entry.ok if record.tensor_bytes_by_rank]
    return max(max(getattr(point, what)) for points in counted for point in vars(points).values()) / MIB if counted else None


def on_gpu(entry, what):
    """MiB of GPU memory on the rank with most, the largest of the runs; None on CPUs, and where it is not known."""
    of_runs = [getattr(memory, what) for record in entry.ok if (memory := record.gpu_memory_by_rank)]
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
        entries.typical(entry, "peak_memory_bytes") / MIB,
        1000 * median if median is not None else None,
        1000 * (median - single_rank_median) if same_work and median is not None and single_rank_median is not None else None,
        *(NOT_MEASURED if (value := value_of(entry)) is None else value for value_of in measured.values()),
    )
