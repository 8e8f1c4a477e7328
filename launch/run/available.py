"""Checks before the first run which jobs can run, and on which device, so that what cannot work stops them all.

The libraries of the backends are asked once, where the ranks will run. A launcher of a cluster may start its ranks on other nodes
than this one, which may have no GPU. There the question goes through the launcher, as one rank of a job: a single step, so that none
waits for another. Elsewhere it is a plain process, of launch/run/node.py as well.
"""

import dataclasses
import json
import operator
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rich.console import Console

from common import workloads
from common.backends import file_of, name_of, needs_mpi, settings_of
from common.config import Settings, cores_per_rank
from common.cost import parallelism, state_memory
from common.data import datasets, sharding
from common.declarations import ROOT
from common.errors import UserError
from common.ranks import binding
from frameworks.shared.deepspeed import configuration
from launch.launchers import commands
from launch.launchers.commands import Launcher
from launch.run import processes, runner, turns
from launch.run.node import MARKER, RANK, Answer, DeviceName, Place
from launch.run.plan import Job
from launch.run.runner import Command

# Imports from a parallel file system may take minutes.
LIMIT_SECONDS = 600.0


class Step(NamedTuple):
    """The ranks of a job without its training: where they are, by rank, and why they failed; None where they did not."""

    job: Job
    places: list[Place]
    error: str | None


def check(jobs: Iterable[Job], launcher: Launcher | None) -> None:
    """Makes every job's command and settings and reads its data once, so that a mistake stops the matrix before its first run.

    `launcher` None: that of a job of a batch system, which knows its nodes only there.
    """
    num_samples: dict[str, int] = {}
    for job in jobs:
        name_of(file_of(job.backend), job.settings)
        if launcher:
            runner.start_of(job, launcher).argv()
        settings = workloads.resolve(job.settings, job.degree)
        if settings.workload not in num_samples:
            num_samples[settings.workload] = workloads.workload_of(settings).model.call(datasets.num_samples, settings)
        plan = workloads.batch_plan(settings, job.degree)
        sharding.num_trained_steps(num_samples[settings.workload], plan.global_batch)
        if settings.deepspeed_config:
            configuration.of(settings, job.num_ranks)


def expect_memory(jobs: Sequence[Job], launcher: Launcher) -> None:
    """Raises UserError for the first job whose state does not fit into the memory of this node, where the jobs run on it."""
    for job in jobs if not runs_elsewhere(jobs, launcher) else ():
        settings = workloads.resolve(job.settings, job.degree)
        state_memory.expect_room(job.backend, settings, job.num_ranks, job.ranks_per_node, settings.device)


def trainable(jobs: Sequence[Job]) -> list[Job]:
    """Returns the jobs without those that their backends cannot train, such as a workload. Prints why these are left out.

    Raises UserError for a size at which no backend trains.
    """
    reasons = {job: parallelism.problem(job.backend, job.settings, job.num_ranks) for job in jobs}
    for num_ranks in {job.num_ranks for job in jobs} - {job.num_ranks for job in jobs if not reasons[job]}:
        raise UserError(next(str(reasons[job]) for job in jobs if job.num_ranks == num_ranks))
    for reason in dict.fromkeys(filter(None, reasons.values())):
        print(f"skipping: {reason}", file=sys.stderr)
    return [job for job in jobs if not reasons[job]]


def runnable(jobs: list[Job], launcher: Launcher) -> list[Job]:
    """Returns the jobs that can run, on the device of the matrix. Prints why others cannot. Raises UserError if none can."""
    runnable_jobs, reasons = runnable_by(ask_for(jobs, launcher), jobs)
    for name, reason in reasons.items():
        print(f"skipping {name}: {reason}", file=sys.stderr)
    if not runnable_jobs:
        raise UserError("none of these backends can run here; the lines above say why")
    return runnable_jobs


def ask_for(jobs: Sequence[Job], launcher: Launcher) -> dict[str, Answer]:
    """Asks the backends of jobs, where the ranks will run, whether they can train.

    Raises UserError if the launcher cannot start a program.
    """
    backends = list(dict.fromkeys(job.backend for job in jobs))
    answers: dict[str, Answer] = {backend: {"error": reason} for backend in backends if (reason := mpi_problem(backend, launcher.name))}
    with Console(stderr=True).status("checking which backends can run, and on which device"):
        unknown = [backend for backend in backends if backend not in answers]
        return answers | answers_of(unknown, jobs[0], launcher, runs_elsewhere(jobs, launcher))


def runnable_by(answers: Mapping[str, Answer], jobs: Sequence[Job]) -> tuple[list[Job], dict[str, str]]:
    """Returns the jobs that can run, on the device on which they all run, and by backend or size why the others cannot.

    Raises UserError if there is no GPU for --device cuda.
    """
    device = common_device(jobs[0].settings.device, answers)
    reasons = {job.backend: reason for job in jobs if (reason := problem(answers[job.backend], device, job.settings.mkl_kernels))}
    jobs = [job for job in jobs if job.backend not in reasons]
    if device == "cuda":
        problems = {job: binding.gpus_problem(answers[job.backend].get("num_gpus"), job.ranks_per_node) for job in jobs}
        jobs = [job for job in jobs if not problems[job]]
        reasons |= {f"size {job.num_ranks}": text for job, text in problems.items() if text}
    return [job._replace(settings=dataclasses.replace(job.settings, device=device)) for job in jobs], reasons


def problem(answer: Answer, device: DeviceName, mkl_kernels: str = Settings.mkl_kernels) -> str | None:
    """Returns why a backend with this answer cannot train on a device; None if it can."""
    of_device = answer.get(device) or answer.get("precision", {}).get(device)
    of_mkl = answer.get("mkl_kernels") if mkl_kernels == "fast" else None
    return answer.get("error") or of_device or (f"--mkl-kernels fast: {of_mkl}" if of_mkl else None)


def mpi_problem(backend: str, launcher: str) -> str | None:
    """Returns why a backend cannot run under a launcher of this name; None if it can."""
    if needs_mpi(backend) and not commands.LAUNCHERS[launcher].provides_mpi:
        return f"it needs MPI, which {launcher} does not provide; use an MPI launcher"
    return None


def runs_elsewhere(jobs: Iterable[Job], launcher: Launcher) -> bool:
    """Returns whether ranks may run on other nodes than this one."""
    return any(launcher.runs_elsewhere(job.num_nodes) for job in jobs)


def waits_for_nodes(launcher: Launcher) -> bool:
    """Returns whether the launcher, outside of an allocation, would wait for nodes."""
    return commands.LAUNCHERS[commands.agent_launcher_of(launcher).name].places == "cluster" and commands.allocation() is None


def answers_of(backends: Sequence[str], job: Job, launcher: Launcher, through_launcher: bool) -> dict[str, Answer]:
    """Returns the answers of backends where a rank of the job runs. Raises UserError if there are none."""
    if not backends:
        return {}
    files = sorted(set(map(file_of, backends)))
    program = (*launcher.python, "-m", "launch.run.node", job.settings.precision, *files)
    # Once, with the cores of one rank.
    once = commands.Start(commands.agent_launcher_of(launcher), 1, 1, cores_per_rank(job.settings), program, launcher.variables)
    argv = once.argv() if through_launcher else [*program]
    printed, error = ask(Command(argv, launcher.variables), job, launcher)
    if not printed:
        reason = error or "it printed no answer"
        remedy = "; TANDEM_PYTHON=… launch/setup.sh --light brings what a site's Python lacks" if "ModuleNotFoundError" in reason else ""
        raise UserError(f"{argv[0]} could not run the check of the backends: {reason}{remedy}")
    answers: dict[str, Answer] = printed[0]
    # The transports that variants choose are for CPUs.
    on_gpus: dict[str, Answer] = {
        backend: {"cuda": f"{backend} is for CPUs"} for backend in backends if settings_of(backend, Settings()).transport
    }
    return {backend: answers[file_of(backend)] | on_gpus.get(backend, {}) for backend in backends}


def step_of(job: Job, launcher: Launcher) -> Step:
    """Starts the ranks of a job as its run does, with launch/run/node.py in place of the training."""
    start = runner.start_of(job, launcher)
    needed = cores_per_rank(job.settings) if job.settings.bind else 0
    program = (*launcher.python, "-m", "launch.run.node", RANK, str(needed), str(job.settings.join_timeout))
    printed, error = ask(runner.command_of(start._replace(program=program)), job, launcher)
    return Step(job, [Place(*values) for values in sorted(printed, key=operator.itemgetter(0))], error)


def ask(command: Command, job: Job, launcher: Launcher) -> tuple[list[Any], str | None]:
    """Returns what a program prints by `node.answer`, and why it failed, or None. Raises UserError if it cannot be started."""
    printed: list[Any] = []
    received = runner.Received(lambda _: None)

    def on_line(line: str) -> None:
        # Launchers may put what two ranks print into one line.
        printed.extend(json.JSONDecoder().raw_decode(text)[0] for text in line.split(MARKER)[1:])
        received.on_line(line)

    # Another matrix may ask for the same job: each ends what has its mark.
    mark = f"{runner.mark_of(job)}.asked-{os.getpid()}"
    is_here = not launcher.runs_elsewhere(job.num_nodes)
    try:
        run = processes.run(command.argv, command.variables, mark, ROOT, LIMIT_SECONDS, received.on_message, on_line, is_here=is_here)
        outcome = turns.alone(run)
    except OSError as error:
        raise UserError(f"{command.argv[0]} could not be started: {error.strerror}") from None
    return printed, runner.ending_of(outcome, LIMIT_SECONDS, launcher, received.errors, received.causes).error


def common_device(device: Literal["auto", "cpu", "cuda"], answers: Mapping[str, Answer]) -> DeviceName:
    """Returns the device for all runs; auto: cuda if a backend can train on it. Raises UserError for cuda if none can."""
    problems = [answer.get("cuda") for answer in answers.values() if "error" not in answer]
    if device == "cuda" and problems and all(problems):
        raise UserError(
            f"--device cuda, but no backend can use a GPU: {', '.join(dict.fromkeys(filter(None, problems)))}; "
            "use --device cpu, set up with TANDEM_DEVICE=cuda on a node with GPUs, or use a PyTorch for GPUs: "
            "TANDEM_PYTHON=python3 launch/setup.sh --light"
        )
    return device if device != "auto" else "cuda" if None in problems else "cpu"
