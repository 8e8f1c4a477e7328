"""Which jobs can run, and on which device: found out before the first run, so that what cannot work stops them all.

What the libraries of the backends find is asked once, where the ranks will run. A launcher of a cluster may start its ranks on other nodes
than this one, which may have no GPU. There the question goes through the launcher, as one rank of a job: a single step, so that none
waits for another. Elsewhere it is a plain process: python -m launch.run.available PRECISION BACKEND… prints one line of JSON.
"""

import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections import ChainMap
from concurrent.futures import ThreadPoolExecutor
from shutil import which

from rich.console import Console

from common import progress, workloads
from common.backends import ROOT, declared, file_of, name_of, needs_mpi, settings_of
from common.config import Settings, cores_per_rank
from common.cost import parallelism
from common.data import datasets
from common.errors import UserError
from common.process import binding, gpus
from launch.launchers import commands
from launch.run import failures, processes, runner, turns

# Imports from a parallel file system may take minutes.
LIMIT_SECONDS = 600.0
# Before the JSON of an answer, since launchers print lines of their own.
MARKER = "tandem-probe: "
PROGRAM = """
import importlib, json, sys, traceback
answers = {}
for name in sys.argv[1:]:
    try:
        trainer_class = importlib.import_module(f"frameworks.{name}").Trainer
        answers[name] = {device: trainer_class.device_problem(device) for device in ("cpu", "cuda")}
    except Exception:
        answers[name] = {"error": traceback.format_exc().splitlines()[-1]}
print(json.dumps(answers))
"""


def check(jobs, launcher):
    """Makes every job's command and settings and reads its data once, so that a mistake stops the matrix before its first run."""
    num_samples = {}
    for job in jobs:
        name_of(file_of(job.backend), job.settings)
        runner.start_of(job, launcher).argv()
        settings = workloads.resolve(job.settings, job.degree)
        if settings.workload not in num_samples:
            on_progress = progress.reading(functools.partial(print, file=sys.stderr))
            num_samples[settings.workload] = len(datasets.loader(settings)(on_progress).train)
        workloads.num_steps(settings, num_samples[settings.workload], workloads.batch_plan(settings, job.degree).global_batch)


def trainable(jobs):
    """The jobs of every backend without those that their backends cannot train, such as a workload. Prints why they are left out."""
    reasons = {job: parallelism.problem(job.backend, job.settings, job.num_ranks) for job in jobs}
    for reason in dict.fromkeys(filter(None, reasons.values())):
        print(f"skipping: {reason}", file=sys.stderr)
    return [job for job in jobs if not reasons[job]]


def runnable(jobs, launcher, dry_run=False):
    """The jobs that can run, on the device of the matrix. Prints why others cannot. Raises UserError if none can."""
    planned = jobs
    jobs, reasons = settled(jobs, launcher, dry_run)
    # A login node need not have the libraries.
    if dry_run and not jobs and all(reason.startswith("ModuleNotFoundError") for reason in reasons.values()):
        print(f"not checked, since the libraries are not on this node: {'; '.join(dict.fromkeys(reasons.values()))}", file=sys.stderr)
        return planned
    for name, reason in reasons.items():
        print(f"skipping {name}: {reason}", file=sys.stderr)
    if not jobs:
        raise UserError("none of these backends can run here; the lines above say why")
    return jobs


def settled(jobs, launcher, dry_run=False, ask_backends=None):
    """Returns (the jobs that can run, on the device they all run on; {backend or size: reason} of the others).

    A dry run starts nothing on other nodes outside an allocation. It then imports the backends here and leaves --device as it is.
    `ask_backends`: as answers_of, which asks by default. Raises UserError if there is no GPU for --device cuda, or if the launcher cannot
    start a program.
    """
    elsewhere = runs_elsewhere(jobs, launcher)
    can_ask = not (dry_run and elsewhere) or can_ask_elsewhere(launcher)
    backends = list(dict.fromkeys(job.backend for job in jobs))
    answers = {backend: {"error": reason} for backend in backends if (reason := mpi_problem(backend, launcher.name))}
    with Console(stderr=True).status("checking which backends can run, and on which device"):
        unknown = [backend for backend in backends if backend not in answers]
        answers |= (ask_backends or answers_of)(unknown, jobs[0], launcher, elsewhere and can_ask)
    device = common_device(jobs[0].settings.device, answers) if can_ask else None
    reasons = {backend: reason for backend in backends if (reason := problem(answers[backend], device))}
    runnable = [job for job in jobs if job.backend not in reasons]
    if device == "cuda":
        problems = {job: binding.gpus_problem(answers[job.backend].get("num_gpus"), job.ranks_per_node) for job in runnable}
        runnable = [job for job in runnable if not problems[job]]
        reasons |= {f"size {job.num_ranks}": text for job, text in problems.items() if text}
    if device:
        runnable = [job._replace(settings=dataclasses.replace(job.settings, device=device)) for job in runnable]
    return runnable, reasons


def problem(answer, device):
    """Why a backend with this answer cannot train on `cpu`, `cuda`, or None if that is not known; None if it can."""
    return answer.get("error") or answer.get(device) or answer.get("precision", {}).get(device)


def mpi_problem(backend, launcher):
    """Why a backend cannot run under a launcher, in words; None if it can."""
    if needs_mpi(backend) and not commands.LAUNCHERS[launcher].provides_mpi:
        return f"it needs MPI, which {launcher} does not provide; use an MPI launcher"
    return None


def runs_elsewhere(jobs, launcher):
    """Whether ranks may run on other nodes than this one."""
    places = commands.LAUNCHERS[launcher.name].places
    if places == "node":
        return any(job.num_nodes > 1 for job in jobs)
    return bool(launcher.hosts) or places == "cluster" or commands.allocation() is not None


def can_ask_elsewhere(launcher):
    """Whether the launcher starts a program on another node at once: outside an allocation it would wait for one."""
    return commands.allocation() is not None and which(launcher.executable) is not None


def answers_of(backends, job, launcher, through_launcher, module="launch.run.available"):
    """{backend: the answer that main of a module prints for it}, where a rank of the job runs. Raises UserError if there is no answer."""
    if not backends:
        return {}
    files = sorted(set(map(file_of, backends)))
    program = (*launcher.python, "-m", module, job.settings.precision, *files)
    argv, variables = program, launcher.variables
    if through_launcher:
        start = on_a_node(program, job, launcher)
        argv, variables = start.argv(), start.variables
    try:
        # Another matrix may ask for the same job: each ends what has its mark.
        mark = f"{runner.mark_of(job)}.probe-{os.getpid()}"
        outcome = turns.alone(processes.run(argv, variables, mark, ROOT, LIMIT_SECONDS, lambda _: None))
    except OSError as error:
        raise UserError(f"{argv[0]} could not be started: {error.strerror}") from None
    json_text = next((line.partition(MARKER)[2] for line in outcome.last_lines if MARKER in line), None)
    if json_text is None:
        _, error = runner.ending_of(outcome, LIMIT_SECONDS, launcher)
        reason = (outcome.last_lines or [error])[-1] + failures.advice(outcome.last_lines, launcher)
        remedy = "; TANDEM_PYTHON=… launch/setup.sh --light brings what a site's Python lacks" if "ModuleNotFoundError" in reason else ""
        raise UserError(f"{argv[0]} could not run the check of the backends: {reason}{remedy}")
    answers = json.loads(json_text)
    return {backend: answers[file_of(backend)] | on_gpus(backend) for backend in backends}


def on_a_node(program, job, launcher):
    """The Start of a program that runs once, on a node of a job, with the cores of one of its ranks."""
    agent_launcher = commands.agent_launcher_of(launcher)
    return commands.Start(agent_launcher, 1, 1, cores_per_rank(job.settings), program, launcher.variables)


def on_gpus(backend):
    """The reason against GPUs that follows from a variant's name: the transports that variants choose are for CPUs."""
    return {"cuda": f"{backend} is for CPUs"} if settings_of(backend, Settings()).transport else {}


def common_device(device, answers):
    """`cpu` or `cuda` for all runs; auto: cuda if a backend can train on it. Raises UserError for cuda if none can."""
    problems = [answer["cuda"] for answer in answers.values() if "error" not in answer]
    if device == "cuda" and problems and None not in problems:
        raise UserError(
            f"--device cuda, but no backend can use a GPU: {', '.join(dict.fromkeys(problems))}; "
            "use --device cpu, or set up with TANDEM_DEVICE=cuda on a node with GPUs"
        )
    return device if device != "auto" else "cuda" if None in problems else "cpu"


def main(precision, *names, **of_node):
    """Prints the answers of backends on the node where this runs, each with what is given of the node."""
    of_node |= {
        "precision": {device: gpus.precision_problem(precision, device) for device in ("cpu", "cuda")},
        "num_gpus": binding.num_gpus_to_share(gpus.count()),
    }
    print(MARKER + json.dumps({name: answer | of_node for name, answer in ask(names).items()}), flush=True)


def ask(names):
    """{backend: {"cpu": why it cannot train on a CPU here, "cuda": on a GPU}, None where it can; {"error": why} if it cannot be imported}.

    Those of one framework are imported in one process, beside those of the other.
    """
    frameworks = {declared()[name].framework for name in names}
    with ThreadPoolExecutor() as pool:
        answers = pool.map(_ask, ([name for name in names if declared()[name].framework == framework] for framework in frameworks))
        return dict(ChainMap(*answers))


def _ask(names):
    """As `ask`, in one process; in one each where it dies of one of them."""
    process = subprocess.run([sys.executable, "-c", PROGRAM, *names], cwd=ROOT, capture_output=True, text=True, check=False)
    if not process.returncode:
        return json.loads(process.stdout.splitlines()[-1])
    if len(names) > 1:
        return dict(ChainMap(*(_ask([name]) for name in names)))
    return {names[0]: {"error": (process.stderr.strip().splitlines() or [f"its import ended with exit status {process.returncode}"])[-1]}}


if __name__ == "__main__":
    main(*sys.argv[1:])
