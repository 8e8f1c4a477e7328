"""What each backend costs: what to choose by, startup time, memory, communication, energy."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from common.record.definition import Record
from common.terminal import Cell, Column, filled
from common.words import ranks_of
from launch.report import environments, statistics
from launch.report.entries import Comparison, Entry
from launch.report.questions import choice
from launch.report.tables import BACKEND, MIB, NOT_MEASURED, RANKS, Findings, apart, in_unit, milliseconds, through
from launch.report.words import span

QUESTION = "What does each backend cost?"
STARTUP = ("launch", "import", "init")
# The key of the record with the seconds of each stage, in order; those of STARTUP precede the timed part.
STAGES = {stage: f"{stage}_seconds" for stage in (*STARTUP, "load")} | {"train": "train_seconds", "evaluate": "eval_seconds"}


class Row(NamedTuple):
    """An entry, and its comparison."""

    comparison: Comparison
    entry: Entry

    @property
    def step_increase_seconds(self) -> float | None:
        """How much longer the median step is than at the backend's own 1 rank, where each rank has the same work."""
        median, single_rank = median_step_seconds(self.entry), self.comparison.entry(self.entry.backend, 1)
        single_rank_median = median_step_seconds(single_rank) if single_rank else None
        # Under strong scaling the batch per rank shrinks with the number of ranks, and so does the step.
        same_work = self.entry.batch_ratio == self.entry.num_ranks > 1 and not self.entry.oversubscribed
        return median - single_rank_median if same_work and median is not None and single_rank_median is not None else None


def _stage(stage: str, row: Row) -> float | None:
    return stages(row.entry)[stage]


COLUMNS: tuple[Column[Row], ...] = (
    *through("entry", BACKEND, RANKS),
    *(Column(f"{stage} (s)", partial(_stage, stage), ".2f") for stage in STAGES),
    Column("peak memory per rank (MiB)", lambda row: peak_mib(row.entry), ".0f"),
    Column("median step (ms)", lambda row: milliseconds(median_step_seconds(row.entry)), ".2f"),
    Column("step increase over own 1 rank (ms)", lambda row: milliseconds(row.step_increase_seconds), ".2f"),
)


def _or_not_measured(value_of: Callable[[Entry], float | None], row: Row) -> Cell:
    value = value_of(row.entry)
    return NOT_MEASURED if value is None else value


def _measured(name: str, value_of: Callable[[Entry], float | None], form: str = ".0f") -> Column[Row]:
    """Returns a column of values that only some records have."""
    return Column(name, partial(_or_not_measured, value_of), form)


ENERGY = _measured("energy (J)", lambda entry: entry.trimmed_mean(attrgetter("energy_joules")))
# Each of these columns is shown where an entry has a value. Those of GPU memory have none on CPUs.
MEASURED = (
    _measured("parameters (MiB)", lambda entry: held(entry, "parameters"), ".2f"),
    _measured("gradients (MiB)", lambda entry: held(entry, "gradients"), ".2f"),
    _measured("optimizer state (MiB)", lambda entry: held(entry, "optimizer_state"), ".2f"),
    _measured("peak GPU memory allocated (MiB)", lambda entry: on_gpu(entry, "peak_allocated_bytes")),
    _measured("reserved (MiB)", lambda entry: on_gpu(entry, "peak_reserved_bytes")),
    _measured("used on the GPU (MiB)", lambda entry: on_gpu(entry, "used_bytes")),
    ENERGY,
)


def answer(comparisons: Sequence[Comparison]) -> Findings:
    """Answers for all comparisons; numbers are trimmed means over the completed runs."""
    records = [record for comparison in comparisons for entry in comparison.entries for record in entry.ok]
    limit_of = environments.limits_of(records)
    tables = [table for comparison in comparisons for table in choice.tables(comparison, limit_of)]
    sentences = environments.describe_slow_products(records)
    all_rows = [Row(comparison, entry) for comparison in comparisons for entry in comparison.entries]
    measured = [column for column in MEASURED if any(column.value_of(row) != NOT_MEASURED for row in all_rows)]
    for comparison in comparisons:
        completed = [entry for entry in comparison.entries if entry.ok]
        for title, chosen in apart(comparison.name, completed):
            tables += filled(title, (*COLUMNS, *measured), [Row(comparison, entry) for entry in chosen])
        if completed:
            fewest_ranks = min(entry.num_ranks for entry in completed)
            smallest = [entry for entry in completed if entry.num_ranks == fewest_ranks]
            sentences += choice.faults(comparison, limit_of)
            sentences.append(_sentence(comparison.name, smallest))
    if ENERGY not in measured:
        sentences.append(f"Energy: {NOT_MEASURED}.")
    return Findings(sentences, tables)


def _sentence(name: str, smallest: Sequence[Entry]) -> str:
    startup = {entry.backend: sum(stages(entry)[stage] or 0.0 for stage in STARTUP) for entry in smallest}
    memory = {entry.backend: mib for entry in smallest if (mib := peak_mib(entry)) is not None}
    return (
        f"{name}, {ranks_of(smallest[0].num_ranks)}: startup ({', '.join(STARTUP)}) takes {span(startup, '{:.1f} s')}; "
        f"peak memory per rank is {span(memory, '{:.0f} MiB') if memory else NOT_MEASURED}."
    )


def stages(entry: Entry) -> dict[str, float | None]:
    """Returns the trimmed mean of the seconds of each of STAGES over the completed runs; None where unknown."""
    return {stage: entry.trimmed_mean(partial(_stage_seconds, key)) for stage, key in STAGES.items()}


def _stage_seconds(key: str, record: Record) -> float | None:
    """Returns the seconds of a stage in a run, those of all epochs together."""
    seconds = getattr(record, key)
    by_epoch = statistics.present(seconds if isinstance(seconds, list) else [seconds])
    return sum(by_epoch) if by_epoch else None


def peak_mib(entry: Entry) -> float | None:
    """Returns the trimmed mean of the peak memory per rank over the completed runs; None where it is not known."""
    return in_unit(entry.trimmed_mean(attrgetter("peak_memory_bytes")), MIB)


def median_step_seconds(entry: Entry) -> float | None:
    """Returns the trimmed mean over the runs of the median step; None where no step time is known."""
    by_run = [statistics.present(record.step_seconds) for record in entry.ok]
    return statistics.trimmed_mean(float(np.median(steps)) for steps in by_run if steps)


def held(entry: Entry, part: str) -> float | None:
    """Returns the MiB of parameters, gradients or optimizer state where a step and the ranks have most; None if not known."""
    points = [point for record in entry.ok if record.tensor_bytes_by_rank for point in vars(record.tensor_bytes_by_rank).values()]
    return max((size / MIB for point in points for size in getattr(point, part)), default=None)


def on_gpu(entry: Entry, key: str) -> float | None:
    """Returns the MiB of GPU memory on the rank with most, the largest of the runs; None on CPUs, and where it is not known."""
    sizes_of_runs = [getattr(memory, key) for record in entry.ok if (memory := record.gpu_memory_by_rank)]
    return max((size / MIB for sizes in sizes_of_runs for size in sizes if size is not None), default=None)
