"""Job scripts of a matrix, one size or all a job, in one bash script that submits each after the one before. Nothing is submitted here."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from common.config import as_arguments, cores_per_rank
from common.declarations import ROOT
from common.errors import UserError
from common.words import ranks_of
from launch.launchers.batch_systems import BATCH_SYSTEMS, JOB_SYNTAXES, JobSyntax
from launch.launchers.commands import LAUNCHERS
from launch.launchers.machine_files import GPU_REQUESTS, Machine, Queue
from launch.run.options import Matrix
from launch.run.plan import Job

# Of a job whose queue has no limit of its own in the machine file.
MOST_MINUTES = 60
# What a job asks PBS of each node, one by one and for itself. A machine file with a `node_request` of its own is of a site that gives whole
# nodes.
NODE, PLACEMENT, PLACEMENT_OF_SITE = "ncpus={node_cores}:mpiprocs={ranks_per_node}{gpus}", "scatter:excl", "scatter"
# A start from a parallel file system, and the step breakdowns, which no clock of a record counts, take minutes.
STEP_MINUTES = 10
# The options that each job has of its own, or that concern the printing.
OF_PRINTING = ("one_job", "queue")
OF_EACH_JOB = ("sizes", "print_jobs", "run", *OF_PRINTING)
HEAD = """#!/usr/bin/env bash
# Submits jobs, each after the one before, however that ended. Arguments are for {program}, such as --account or -A, and override the
# lines of the jobs.
set -euo pipefail

# Submits the script on standard input; `previous` is then the number of its job, the last one that is printed.
submit() {{
  local output
  output=$({submit} "$@")
  previous=$(grep -oE '{number}' <<<"$output" | tail -n 1) || true
  [ -n "$previous" ] && return
  printf '%s\\n' "$output" "error: {program} printed no number of a job" >&2
  exit 1
}}

"""
# Only a login shell knows `module` everywhere.
JOB = """submit{after} "$@" <<'END_OF_JOB'
{script}
END_OF_JOB
echo "{ranks}: $previous"
"""
SCRIPT = """#!/bin/bash -l
{directives}
{modules}
set -euo pipefail
cd {folder}
exec {command}"""
# What launch/setup.sh has noted of the modules that were loaded when it ran: for the environment, else for a site's Python.
SETUP_FILES = (ROOT / ".venv" / "tandem-modules", ROOT / ".light" / "modules")
# Environment Modules 3.2 return 0 also for a module that is not there.
LOAD = """for module in {modules}; do
  module load "$module"
  [[ ":${{LOADEDMODULES-}}:" == *":$module:"* ]] || {{ echo "error: module load $module has failed" >&2; exit 1; }}
done"""
SETUP_TITLE = "# Loaded when launch/setup.sh ran:"


def text(system: str, matrix: Matrix, jobs: Iterable[Job], machine: Machine, folder: Path) -> str:
    """Returns the bash script that submits the jobs of a matrix to a batch system: a job for each size, or one for all.

    `folder`: where the command was given, from which its paths are.
    """
    kind, jobs = JOB_SYNTAXES[system], list(jobs)
    limits = machine.queues.get(matrix.queue or "", Queue())
    _expect_taken(system, matrix.queue, limits, max(job.num_nodes for job in jobs), machine)
    prologue = f"{{ {machine.prologue.strip()}\n}} || exit" if machine.prologue else ""
    lines = (prologue_of(noted_at_setup(SETUP_FILES)), prologue)
    modules = "\n".join(filter(None, lines)) or "# module load …"
    parts = [HEAD.format(submit=kind.submit, number=kind.number, program=kind.submit.split()[0])]
    for number, jobs_of_script in enumerate(divided(jobs, matrix.one_job)):
        # Of runs one after the other.
        steps = math.ceil(len(jobs_of_script) * matrix.time_limit / 60 / STEP_MINUTES + 1)
        minutes = min(limits.minutes or MOST_MINUTES, STEP_MINUTES * steps)
        script = SCRIPT.format(
            directives=directives(kind, jobs_of_script, minutes, matrix.queue, machine), modules=modules,
            folder=shlex.quote(str(folder)), command=shlex.join(command(matrix, jobs_of_script)),
        )  # fmt: skip
        after = f" {kind.after}" if number else ""
        ranks = ", ".join(map(ranks_of, sizes_of(jobs_of_script)))
        parts.append(JOB.format(after=after, script=script, ranks=ranks))
    return "".join(parts)


def _expect_taken(system: str, queue: str | None, limits: Queue, num_nodes: int, machine: Machine) -> None:
    """Raises UserError for jobs that the machine's batch system or their queue would not take."""
    if queue is not None and len(queue.split()) != 1:
        raise UserError(f"--queue is {queue!r}; give the name of one queue, a word")
    allocations = LAUNCHERS[machine.launcher].allocations if machine.launcher else ()
    systems = [name.lower() for name, kind in BATCH_SYSTEMS.items() if kind.variable in allocations]
    if systems and system not in systems:
        launcher = f"the machine file's launcher, {machine.launcher}, starts ranks under {systems[0]}"
        raise UserError(f"--print-jobs is {system}, and {launcher}; give --print-jobs {systems[0]}")
    if limits.nodes and num_nodes > limits.nodes:
        raise UserError(
            f"{num_nodes} nodes are planned, and a job in {queue} has {limits.nodes} at most; give another --queue, or fewer ranks"
        )


def noted_at_setup(files: Iterable[Path]) -> dict[str, str]:
    """Returns the variables that the set-up has noted; none without a set-up."""
    path = next((path for path in files if path.exists()), None)
    lines = path.read_text().splitlines() if path else []
    return dict(line.split("=", 1) for line in lines if "=" in line)


def prologue_of(variables: Mapping[str, str]) -> str:
    """Returns lines of bash that load what these variables name; empty where they name nothing."""
    modules = [name for name in variables.get("LOADEDMODULES", "").split(":") if name]
    lines = [f"export MODULEPATH={shlex.quote(path)}"] if modules and (path := variables.get("MODULEPATH")) else []
    lines += [LOAD.format(modules=shlex.join(modules))] if modules else []
    for name in ("CONDA_PREFIX", "VIRTUAL_ENV"):
        if folder := variables.get(name):
            # The function `conda` is not there in every shell.
            lines.append(f"export {name}={shlex.quote(folder)} PATH={shlex.quote(folder + '/bin')}:$PATH")
    return "\n".join([SETUP_TITLE, *lines]) if lines else ""


def divided(jobs: Iterable[Job], one_job: bool) -> list[list[Job]]:
    """Returns the runs of each job of the batch system: those of a size, or all."""
    jobs_by_size: dict[int, list[Job]] = {}
    for job in jobs:
        jobs_by_size.setdefault(0 if one_job else job.num_ranks, []).append(job)
    return [jobs_by_size[num_ranks] for num_ranks in sorted(jobs_by_size)]


def sizes_of(jobs: Iterable[Job]) -> list[int]:
    return sorted({job.num_ranks for job in jobs})


def directives(kind: JobSyntax, jobs: Sequence[Job], minutes: int, queue: str | None, machine: Machine) -> str:
    """Returns the lines by which a job with these runs asks a batch system for its resources, which are those of the largest."""
    job = max(jobs, key=lambda job: job.num_ranks)
    num_cores = cores_per_rank(job.settings)
    fields = job._asdict() | {
        "num_nodes": job.num_nodes, "num_cores": num_cores, "node_cores": job.ranks_per_node * num_cores,
        "hours": minutes // 60, "minutes": minutes % 60, "sizes": "-".join(map(str, sizes_of(jobs))),
        "gpu_request": GPU_REQUESTS[machine.gpu_request].format(job.ranks_per_node),
    }  # fmt: skip
    gpus = kind.gpus.format(**fields) if job.settings.device == "cuda" and fields["gpu_request"] else ""
    of_queue = kind.queue.format(queue_option=machine.queue_option, name=queue) if queue else ""
    node = machine.node_request or NODE.format(**fields, gpus=gpus)
    node_request = kind.node_request.format(node_request=machine.node_request) if machine.node_request else ""
    placement = PLACEMENT_OF_SITE if machine.node_request else PLACEMENT
    return kind.directives.format(**fields, gpus=gpus, node=node, placement=placement, queue=of_queue, node_request=node_request)


def command(matrix: Matrix, jobs: Sequence[Job]) -> list[str]:
    """Returns the command of a job with these runs. Size 1 may be one that only the backends of one process have."""
    sizes = list(matrix.sizes) if matrix.one_job else sizes_of(jobs)
    if sizes[0] not in matrix.sizes:
        matrix = dataclasses.replace(matrix, backends=",".join(dict.fromkeys(job.backend for job in jobs)))
    run = dataclasses.replace(matrix.run, resume=True)
    return [str(ROOT / "launch" / "matrix.sh"), *map(str, sizes), *as_arguments(matrix, OF_EACH_JOB), *as_arguments(run)]
