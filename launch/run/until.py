"""Finds whether --until can end the repeats of a matrix before their limit."""

from collections.abc import Iterable, Sequence

from common.errors import UserError
from common.record.definition import Record
from common.workloads import workload_of
from launch.report import entries, widths
from launch.report.statistics import MIN_RUNS_CONFIDENT
from launch.report.words import listed, ranks_of
from launch.run.plan import Job


def check(percent: float | None, num_repeats: int) -> None:
    """Raises UserError for a number of repeats that is too small for a verdict; `percent` None: repeat `num_repeats` times."""
    if percent is not None and num_repeats < MIN_RUNS_CONFIDENT:
        raise UserError(f"--until needs --repeats as its limit, at least {MIN_RUNS_CONFIDENT}, which a verdict takes; it is {num_repeats}")


def hindrances(jobs: Iterable[Job], percent: float | None, num_repeats: int, earlier_records: Sequence[Record]) -> list[str]:
    """Returns lines on what keeps --until from ending the repeats of jobs early, also the noise of the last matrix in earlier records."""
    if percent is None:
        return []
    if num_repeats == MIN_RUNS_CONFIDENT:
        return [f"--until {percent:g} has no effect: a verdict takes {MIN_RUNS_CONFIDENT} repeats, and --repeats is {num_repeats}"]
    backends_by_size: dict[tuple[str, int], set[str]] = {}
    targets: dict[str, float | None] = {}
    for job in jobs:
        backends_by_size.setdefault((job.settings.workload, job.num_ranks), set()).add(job.backend)
        targets[job.settings.workload] = workload_of(job.settings).target
    without_ratio = [
        f"{workload} at {ranks_of(size)}"
        for (workload, size), backends in backends_by_size.items()
        if len(backends) == 1 or targets[workload] is None
    ]
    lines = [f"--until {percent:g} has no effect on {listed(without_ratio)}: no ratio of two backends"] if without_ratio else []
    last_matrix = max((entries.key_of(record).matrix for record in earlier_records), default=None)
    measured = widths.by_size([record for record in earlier_records if entries.key_of(record).matrix == last_matrix])
    late = {size: width for size, width in measured.items() if size in backends_by_size and width.expected_repeats(percent) > num_repeats}
    return lines + [f"in the last matrix here: {line}" for line in widths.describe(late, percent, num_repeats)]
