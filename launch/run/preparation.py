"""What is done before runs start, so that what cannot work stops them all: paths, what backends can train, and every job's command."""

import functools
import sys

from common import backends, progress, workloads
from common.cost import parallelism
from common.data import datasets
from common.errors import UserError
from common.record import records
from launch.run import available, runner


def seen_from_root(path):
    """The path relative to the checkout inside it, absolute elsewhere."""
    path = path.absolute()
    return path.relative_to(records.ROOT) if path.is_relative_to(records.ROOT) else path


def check(jobs, launcher):
    """Makes every job's command and settings and reads its data once, so that a mistake stops the matrix before its first run."""
    num_samples = {}
    for job in jobs:
        backends.name_of(backends.file_of(job.backend), job.settings)
        runner.start_of(job, launcher).argv()
        settings = workloads.resolve(job.settings, job.degree)
        if settings.workload not in num_samples:
            on_progress = progress.reading(functools.partial(print, file=sys.stderr))
            num_samples[settings.workload] = len(datasets.loader(settings)(on_progress).train)
        workloads.num_steps(settings, num_samples[settings.workload], job.degree)


def trainable(jobs):
    """The jobs of every backend without those that their backends cannot train, such as a workload. Prints why they are left out."""
    reasons = {job: parallelism.problem(job.backend, job.settings, job.num_ranks) for job in jobs}
    for reason in dict.fromkeys(filter(None, reasons.values())):
        print(f"skipping: {reason}", file=sys.stderr)
    return [job for job in jobs if not reasons[job]]


def runnable(jobs, launcher, dry_run):
    """The jobs that can run, on the device of the matrix. Prints why others cannot. Raises UserError if none can."""
    jobs, reasons = available.settled(jobs, launcher, dry_run)
    for backend, reason in reasons.items():
        print(f"skipping {backend}: {reason}", file=sys.stderr)
    if not jobs:
        raise UserError("none of these backends can run here; the lines above say why")
    return jobs
