"""Job scripts of a matrix, one size a job, in one bash script that submits each after the one before. Nothing is submitted here."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from common import workloads
from common.backends import ROOT
from common.config import as_arguments, cores_per_rank
from common.record.definition import Record
from launch.report import comparable
from launch.report.words import ranks_of
from launch.run.plan import Job
from launch.run.remaining import MARGIN

if TYPE_CHECKING:
    from launch.run.matrix_options import Matrix

DEFAULT_MINUTES = 60
# A start from a parallel file system, and the step breakdowns, which no clock of a record counts, take minutes.
STEP_MINUTES = 10
# The options that each job has of its own, or that concern the printing.
OF_EACH_JOB = ("sizes", "print_jobs", "run")


class BatchSystem(NamedTuple):
    """A batch system. The function `directives` fills the fields of its templates."""

    # The lines by which each job asks for its nodes, cores and time.
    directives: str
    # The text by which it asks for the GPUs of a node, in the place of {gpus}.
    gpus: str
    # The command that reads a script from standard input and prints the number of the job, among lines of others.
    submit: str
    # A line that is the number of a job, as a regular expression of sed -E.
    number: str
    # The option by which a job waits for the end of the one before, however that ends.
    after: str
    # The command that cancels the job $1.
    cancel: str


BATCH_SYSTEMS = {
    "slurm": BatchSystem(
        """#SBATCH --job-name=tandem-{num_ranks}
#SBATCH --nodes={num_nodes}
#SBATCH --ntasks-per-node={ranks_per_node}
#SBATCH --cpus-per-task={num_cores}
#SBATCH --threads-per-core=1{gpus}
#SBATCH --exclusive
#SBATCH --time={time}
#SBATCH --output=tandem-{num_ranks}-%j.out
#SBATCH --requeue
#SBATCH --open-mode=append""",
        gpus="\n#SBATCH --gres=gpu:{ranks_per_node}", submit="sbatch --parsable",
        number="[0-9]+(;[^ ]+)?", after='"--dependency=afterany:${previous%%;*}"',
        # Behind a semicolon stands the cluster, where that was chosen.
        cancel='case $1 in *";"*) scancel --clusters="${1#*;}" "${1%%;*}" ;; *) scancel "$1" ;; esac',
    ),
    "pbs": BatchSystem(
        """#PBS -N tandem-{num_ranks}
#PBS -S /bin/bash
#PBS -l select={num_nodes}:ncpus={node_cores}:mpiprocs={ranks_per_node}{gpus}
#PBS -l place=scatter:excl
#PBS -l walltime={time}
#PBS -j oe
#PBS -r y""",
        gpus=":ngpus={ranks_per_node}", submit="qsub", number="[0-9]+(\\[\\])?(\\.[A-Za-z0-9_.-]+)?",
        after='-W "depend=afterany:$previous"', cancel='qdel "$1"',
    ),
}  # fmt: skip
HEAD = """#!/usr/bin/env bash
# Submits a job for each size, each after the one before, however that ended: all jobs or none. Arguments are for {program}, such as
# --account or -A.
set -euo pipefail

# Submits the script on standard input; `previous` is then the number of its job, the last line that looks like one.
submit() {{
  local output status=0
  output=$({submit} "$@") || status=$?
  previous=$(sed -nE 's/^[[:space:]]*(Submitted batch job )?({number})[[:space:]]*$/\\2/p' <<<"$output" | tail -n 1)
  # The last comes first: it would begin if the one that it waits for were cancelled before it.
  [ -z "$previous" ] || submitted=("$previous" ${{submitted[@]+"${{submitted[@]}}"}})
  [ -z "$interrupted" ] || give_up "interrupted"
  [ $status = 0 ] && [ -n "$previous" ] && return
  printf '%s\\n' "$output" >&2
  [ $status = 0 ] || give_up "{program} ended with exit status $status"
  give_up "{program} printed no number of a job, so that one may be queued that is not cancelled here"
}}

cancel() {{ {cancel}; }}

give_up() {{
  trap "" INT TERM HUP
  echo "error: $1" >&2
  for job in ${{submitted[@]+"${{submitted[@]}}"}}; do
    if cancel "$job"; then echo "cancelled: $job" >&2; else echo "not cancelled: $job" >&2; fi
  done
  exit 1
}}

# Called at the end: what is read in part submits nothing.
submit_all() {{
submitted=() interrupted=""
# The number of a job that is being submitted is read first.
trap 'interrupted=yes' INT TERM HUP
"""
# Only a login shell knows `module` everywhere.
JOB = """submit{after} "$@" <<'{end}'
{script}
{end}
echo "{ranks}: $previous"
"""
SCRIPT = """#!/bin/bash -l
{directives}
# The time limit is {reason}.
{modules}
set -euo pipefail
cd {folder}
exec {command}"""
TAIL = """}

submit_all "$@\""""


class TimeLimit(NamedTuple):
    """The minutes that a job may take, and the reason for them."""

    minutes: int
    reason: str


def text(system: str, matrix: Matrix, jobs: Iterable[Job], prologue: str, earlier: Sequence[Record], folder: Path) -> str:
    """Returns the bash script that submits the jobs of a matrix to a batch system, a job for each size.

    `earlier`: records, by which times are estimated; `folder`: where the command was given, from which its paths are.
    """
    kind = BATCH_SYSTEMS[system]
    jobs_by_size: dict[int, list[Job]] = {}
    for job in jobs:
        jobs_by_size.setdefault(job.num_ranks, []).append(job)
    modules, place = prologue.strip() or "# module load …", shlex.quote(str(folder))
    parts = [HEAD.format(**kind._asdict(), program=kind.submit.split()[0])]
    for number, num_ranks in enumerate(sorted(jobs_by_size)):
        jobs_of_size = jobs_by_size[num_ranks]
        minutes, reason = time_limit(jobs_of_size, earlier)
        script = SCRIPT.format(
            directives=directives(kind, jobs_of_size[0], minutes), reason=reason, modules=modules, folder=place,
            command=shlex.join(command(matrix, jobs_of_size)),
        )  # fmt: skip
        after = f" {kind.after}" if number else ""
        parts.append(JOB.format(after=after, end=end_of(script), script=script, ranks=ranks_of(num_ranks)))
    return "".join([*parts, TAIL])


def end_of(script: str) -> str:
    """Returns a word that ends a here-document and stands nowhere in a script: what followed it would run on the login node."""
    word = "END_OF_JOB"
    while word in script:
        word += "_"
    return word


def directives(kind: BatchSystem, job: Job, minutes: int) -> str:
    """Returns the lines by which a job with such runs asks a batch system for its resources."""
    num_cores = cores_per_rank(job.settings)
    fields = job._asdict() | {
        "num_nodes": job.num_nodes, "num_cores": num_cores, "node_cores": job.ranks_per_node * num_cores,
        "time": f"{minutes // 60:02d}:{minutes % 60:02d}:00",
    }  # fmt: skip
    gpus = kind.gpus.format(**fields) if job.settings.device == "cuda" else ""
    return kind.directives.format(**fields, gpus=gpus)


def command(matrix: Matrix, jobs: Sequence[Job]) -> list[str]:
    """Returns the command of a job with these runs of one size. Size 1 may be one that only the backends of one process have."""
    num_ranks = jobs[0].num_ranks
    if num_ranks not in matrix.sizes:
        matrix = dataclasses.replace(matrix, backends=",".join(dict.fromkeys(job.backend for job in jobs)))
    run = dataclasses.replace(matrix.run, resume=True)
    return [str(ROOT / "launch" / "matrix.sh"), str(num_ranks), *as_arguments(matrix, OF_EACH_JOB), *as_arguments(run)]


def time_limit(jobs: Iterable[Job], earlier: Sequence[Record]) -> TimeLimit:
    """Returns the time limit of a job: 1.3 times what the same runs took before, one after the other, else a default."""
    total_seconds = 0.0
    for job in jobs:
        seconds = _seconds_before(job, earlier)
        if seconds is None:
            reason = f"a default, since no earlier record has {job.backend} on {job.settings.workload} at this size"
            return TimeLimit(DEFAULT_MINUTES, reason)
        total_seconds += seconds
    minutes = STEP_MINUTES * math.ceil(MARGIN * total_seconds / 60 / STEP_MINUTES + 1)
    reason = f"{MARGIN} times the {total_seconds:.0f} s of the same runs in earlier records, and at least {STEP_MINUTES} minutes"
    return TimeLimit(minutes, reason)


def _seconds_before(job: Job, earlier: Iterable[Record]) -> float | None:
    """Returns the seconds of the longest earlier run that a job repeats; None where there is none."""
    settings = workloads.resolve(job.settings, job.degree)
    cell = job.backend, settings.workload, job.num_ranks, job.num_nodes
    repeated = [
        record
        for record in earlier
        if record.status == "ok"
        and (record.backend, record.workload, record.num_ranks, record.num_nodes) == cell
        and not comparable.setting_differences(record.settings, settings)
    ]
    return max((_seconds_of(record) for record in repeated), default=None)


def _seconds_of(record: Record) -> float:
    parts = [record.launch_seconds, record.import_seconds, record.init_seconds, record.load_seconds, record.check_seconds]
    return sum(filter(None, [*parts, *record.train_seconds, *record.eval_seconds]))
