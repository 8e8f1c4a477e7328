"""Job scripts of a matrix, one size a job, in one bash script that submits each after the one before. Nothing is submitted here."""

import dataclasses
import math
import shlex
from typing import NamedTuple

from common import workloads
from common.config import as_arguments, cores_per_rank
from common.record.records import ROOT
from launch.report import comparable
from launch.report.words import ranks_of
from launch.run.remaining import MARGIN

DEFAULT_MINUTES = 60
# A start from a parallel file system, and the step breakdowns, which no clock of a record counts, take minutes.
STEP_MINUTES = 10
# What each job has of its own, or what concerns the printing.
OF_EACH_JOB = ("sizes", "print_jobs", "run")


class BatchSystem(NamedTuple):
    """A batch system. The fields of its templates are those of `directives`."""

    # What each job asks for.
    directives: str
    # What asks for the GPUs of a node, in the place of {gpus}.
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
#SBATCH --cpus-per-task={num_cores}{gpus}
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


def text(system, matrix, jobs, prologue, earlier, folder):
    """The bash script that submits the jobs of a matrix to a batch system, a job for each size.

    `earlier`: records, by which times are estimated; `folder`: where the command was typed, from which its paths are.
    """
    kind, by_size = BATCH_SYSTEMS[system], {}
    for job in jobs:
        by_size.setdefault(job.num_ranks, []).append(job)
    modules, place = prologue.strip() or "# module load …", shlex.quote(str(folder))
    parts = [HEAD.format(**kind._asdict(), program=kind.submit.split()[0])]
    for number, num_ranks in enumerate(sorted(by_size)):
        of_size = by_size[num_ranks]
        minutes, reason = limit_minutes(of_size, earlier)
        script = SCRIPT.format(
            directives=directives(kind, of_size[0], minutes), reason=reason, modules=modules, folder=place,
            command=shlex.join(command(matrix, of_size)),
        )  # fmt: skip
        after = f" {kind.after}" if number else ""
        parts.append(JOB.format(after=after, end=end_of(script), script=script, ranks=ranks_of(num_ranks)))
    return "".join([*parts, TAIL])


def end_of(script: str) -> str:
    """A word that ends a here-document and stands nowhere in a script: what followed it would run on the login node."""
    word = "END_OF_JOB"
    while word in script:
        word += "_"
    return word


def directives(kind, job, minutes):
    """What a job of such runs asks a batch system for."""
    num_cores = cores_per_rank(job.settings)
    fields = job._asdict() | {
        "num_nodes": job.num_nodes, "num_cores": num_cores, "node_cores": job.ranks_per_node * num_cores,
        "time": f"{minutes // 60:02d}:{minutes % 60:02d}:00",
    }  # fmt: skip
    gpus = kind.gpus.format(**fields) if job.settings.device == "cuda" else ""
    return kind.directives.format(**fields, gpus=gpus)


def command(matrix, jobs):
    """The command of a job with these jobs of one size. Size 1 may be one that only the backends of one process have."""
    num_ranks = jobs[0].num_ranks
    if num_ranks not in matrix.sizes:
        matrix = dataclasses.replace(matrix, backends=",".join(dict.fromkeys(job.backend for job in jobs)))
    run = dataclasses.replace(matrix.run, resume=True)
    return [str(ROOT / "launch" / "matrix.sh"), str(num_ranks), *as_arguments(matrix, OF_EACH_JOB), *as_arguments(run)]


def limit_minutes(jobs, earlier):
    """(minutes, why so many) of a job: 1.3 times what the same runs took before, one after the other, else a default."""
    seconds = [_seconds_before(job, earlier) for job in jobs]
    if None in seconds:
        missing = jobs[seconds.index(None)]
        return DEFAULT_MINUTES, f"a default, since no earlier record has {missing.backend} on {missing.settings.workload} at this size"
    minutes = STEP_MINUTES * math.ceil(MARGIN * sum(seconds) / 60 / STEP_MINUTES + 1)
    return minutes, f"{MARGIN} times the {sum(seconds):.0f} s of the same runs in earlier records, and at least {STEP_MINUTES} minutes"


def _seconds_before(job, earlier):
    """The seconds of the longest earlier run that a job repeats; None where there is none."""
    settings = workloads.resolve(job.settings, job.degree)
    cell = job.backend, settings.workload, job.num_ranks, job.num_nodes
    repeated = [
        record
        for record in earlier
        if (record.status, (record.backend, record.workload, record.num_ranks, record.num_nodes)) == ("ok", cell)
        and not comparable.setting_differences(record.settings, settings)
    ]
    return max((_seconds_of(record) for record in repeated), default=None)


def _seconds_of(record):
    parts = [record.launch_seconds, record.import_seconds, record.init_seconds, record.load_seconds, record.check_seconds]
    return sum(filter(None, [*parts, *record.train_seconds, *record.eval_seconds]))
