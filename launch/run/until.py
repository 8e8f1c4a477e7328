"""Whether --until can end the repeats of a matrix before their limit. Pure."""

from common.errors import UserError
from common.model.workload_table import WORKLOADS
from launch.report import entries, widths
from launch.report.statistics import MIN_RUNS_CONFIDENT
from launch.report.words import listed, ranks_of


def check(percent, num_repeats):
    """Raises UserError for a number of repeats that is too small for a verdict; `percent` None: repeat `num_repeats` times."""
    if percent is not None and num_repeats < MIN_RUNS_CONFIDENT:
        raise UserError(f"--until needs --repeats as its limit, at least {MIN_RUNS_CONFIDENT}, which a verdict takes; it is {num_repeats}")


def hindrances(jobs, percent, num_repeats, earlier_records):
    """Lines on what keeps --until from ending the repeats of jobs early, also the noise of the last matrix among earlier records."""
    if percent is None:
        return []
    if num_repeats == MIN_RUNS_CONFIDENT:
        return [f"--until {percent:g} has no effect: a verdict takes {MIN_RUNS_CONFIDENT} repeats, and --repeats is {num_repeats}"]
    backends = {}
    for job in jobs:
        backends.setdefault((job.settings.workload, job.num_ranks), set()).add(job.backend)
    without_ratio = [
        f"{workload} at {ranks_of(size)}"
        for (workload, size), names in backends.items()
        if len(names) == 1 or WORKLOADS[workload].target is None
    ]
    lines = [f"--until {percent:g} has no effect on {listed(without_ratio)}: no ratio of two backends"] if without_ratio else []
    last = max((entries.key_of(record)[0] for record in earlier_records), default=None)
    measured = widths.by_size([record for record in earlier_records if entries.key_of(record)[0] == last])
    late = {key: width for key, width in measured.items() if key in backends and width.expected_repeats(percent) > num_repeats}
    return lines + [f"in the last matrix here: {line}" for line in widths.describe(late, percent, num_repeats)]
