"""The seeds of a matrix: those after the seeds that earlier matrices have given the same runs."""

import dataclasses
import sys

from common.config import Settings
from launch.report import entries


def earlier(records, stamp):
    """The records that were there before the matrix with this stamp began, which is how those of matrices are named."""
    return [record for record in records if entries.key_of(record)[0] < stamp]


def continued(jobs, earlier_records):
    """The jobs with the seeds after the last one with which any of them (backend, workload, number of ranks) has a record.

    So the verdicts of two matrices are from different trainings. Says so where these are not the first seeds.
    """
    cells = {(job.backend, job.settings.workload, job.num_ranks) for job in jobs}
    last = max((record.seed for record in earlier_records if (record.backend, record.workload, record.num_ranks) in cells), default=0)
    if last:
        print(f"first seed: {Settings.seed + last}, after those of earlier matrices; --seed {Settings.seed} repeats these", file=sys.stderr)
    return [job._replace(settings=dataclasses.replace(job.settings, seed=job.settings.seed + last)) for job in jobs]
