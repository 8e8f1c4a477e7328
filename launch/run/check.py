"""launch/matrix.sh --check: what a matrix would use, and what would go wrong, one line each.

It starts the ranks of each size as a run does, trains nothing and leaves no file. Each function of LINES yields the lines of its subject,
from the Facts of a matrix. The text of a problem ends in its remedy.
"""

import itertools
import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from common import workloads
from common.backends import ALL, declaration_of
from common.config import Settings, cores_per_rank
from common.cost import state_memory
from common.declarations import ROOT
from common.errors import UserError
from common.ranks import binding, machine
from common.record import files
from common.words import ranks_of
from launch.launchers import batch_systems, commands, detect
from launch.launchers.commands import LAUNCHERS, PYTHON, Launcher
from launch.run import available, lock, node
from launch.run.available import Step
from launch.run.node import Node
from launch.run.options import Matrix
from launch.run.place import Place
from launch.run.plan import Job

Severity = Literal["ok", "note", "problem"]
# The severity and the text of each line.
Lines = Iterator[tuple[Severity, str]]
OK: Severity = "ok"
NOTE: Severity = "note"
PROBLEM: Severity = "problem"
GB = 1e9
NCCL_INTERFACE = "NCCL_SOCKET_IFNAME"
NUMBER = re.compile(r"\d+\.\d+(?:\.\d+)*")
REBUILD = "TANDEM_MPICC=/path/of/its/mpicc launch/setup.sh"
ELSEWHERE = "make room, or give another folder with --results"
# The end of the message of a framework that is built for GPUs where it finds none.
FINDS_NONE = "finds no GPU"
MAX_NAMED = 8


class Facts(NamedTuple):
    """What is known of a matrix. The defaults are those of a matrix that would stop before it asks the backends."""

    settings: Settings
    jobs: list[Job]
    # The node that was asked, and whether ranks run there.
    node: Node
    of_ranks: bool = False
    launcher: Launcher | None = None
    # The jobs that can run, on the device of the matrix, and by backend or size why the others cannot.
    runnable: tuple[Job, ...] = ()
    reasons: dict[str, str] = {}  # noqa: RUF012
    # The ranks of each size, up to the first that does not start; none outside the allocation that their launcher needs.
    steps: tuple[Step, ...] = ()
    # Why the matrix would stop, and the messages of frameworks that are built for GPUs and see none.
    errors: tuple[str, ...] = ()
    gpu_problems: tuple[str, ...] = ()
    # The values of --backends and --share-machine.
    requested: str | None = None
    shares_machine: bool = False

    @property
    def problem(self) -> Severity:
        """The severity of what is wrong on the node, where that may not be one of the ranks'."""
        return "problem" if self.of_ranks else "note"


def run(matrix: Matrix, settings: Settings, jobs: list[Job], choose: Callable[[], Launcher]) -> int:
    """Prints the screen of a matrix and returns the exit status. `choose` raises NotFound where there is no launcher."""
    lines = screen(facts_of(matrix, settings, jobs, choose))
    for severity, subject, text in lines:
        print(f"{severity:8}{subject:12} {text}")
    return 1 if any(severity == PROBLEM for severity, _, _ in lines) else 0


def screen(facts: Facts) -> list[tuple[Severity, str, str]]:
    """Returns severity, subject and text of all lines. A UserError is a problem, which has one line though several subjects may meet it."""
    lines: dict[str, tuple[Severity, str, str]] = {}
    for subject, lines_of in LINES.items():
        try:
            for severity, text in lines_of(facts):
                lines.setdefault(text, (severity, subject, text))
        except UserError as problem:
            lines.setdefault(str(problem), (PROBLEM, subject, str(problem)))
    return list(lines.values())


def facts_of(matrix: Matrix, settings: Settings, jobs: list[Job], choose: Callable[[], Launcher]) -> Facts:
    """Returns what is known of a matrix."""
    of_options = {"requested": matrix.backends, "shares_machine": matrix.share_machine}
    try:
        launcher = choose()
    except detect.NotFound as missing:
        return Facts(settings, jobs, node.describe(), errors=(str(missing),), **of_options)
    answers, runnable, reasons, errors, steps = available.Answers({}, of_ranks=False), [], {}, [], []
    try:
        available.check(jobs, launcher)
        steps = steps_of(jobs, launcher)
        answers = available.ask_for(jobs, launcher, for_check=True)
        runnable, reasons = available.runnable_by(answers, jobs)
    except UserError as problem:
        errors.append(str(problem))
    asked_node = next((answer["node"] for answer in answers.by_backend.values() if "node" in answer), None)
    is_of_ranks = asked_node is not None and answers.of_ranks
    gpu_problems = dict.fromkeys(answer.get("cuda") or "" for answer in answers.by_backend.values())
    return Facts(
        settings,
        jobs,
        asked_node or node.describe(),
        of_ranks=is_of_ranks,
        launcher=launcher,
        runnable=tuple(runnable),
        reasons=reasons,
        steps=tuple(steps),
        errors=tuple(errors),
        gpu_problems=tuple(problem for problem in gpu_problems if problem.endswith(FINDS_NONE)),
        **of_options,
    )


def steps_of(jobs: Sequence[Job], launcher: Launcher) -> list[Step]:
    """Starts the ranks of each size, the smallest first, up to the first that does not start. Waits for no allocation."""
    steps: list[Step] = []
    if available.waits_for_nodes(launcher):
        return steps
    for num_ranks in sorted({job.num_ranks for job in jobs}):
        steps.append(available.step_of(next(job for job in jobs if job.num_ranks == num_ranks), launcher))
        if steps[-1].error:
            break
    return steps


def launcher(facts: Facts) -> Lines:
    if facts.launcher is None:
        yield PROBLEM, facts.errors[0]
        return
    name, executable = facts.launcher.name, facts.launcher.executable
    kind = LAUNCHERS[name]
    version = NUMBER.search(detect.output_of([executable, "--version"])) if kind.signatures else None
    yield OK, f"{name}{f' {version[0]}' if version else ''}, {executable}"
    if (name_of_allocation := commands.allocation()) and (end := batch_systems.end_time()):
        minutes = max(0, end - time.time()) / 60
        yield OK, f"allocation {name_of_allocation} has {minutes:.0f} min left; --resume runs in another what does not end in it"
    elif available.waits_for_nodes(facts.launcher):
        yield NOTE, f"outside an allocation {name} would wait for nodes: the lines below are of {socket.gethostname()}; check inside one"
    elif not facts.of_ranks and not facts.errors:
        yield NOTE, f"ranks run on other nodes too: the lines below are of {socket.gethostname()}"


def ranks(facts: Facts) -> Lines:
    for step in facts.steps:
        if step.error:
            nodes = f" on {step.job.num_nodes} nodes" if step.job.num_nodes > 1 else ""
            remedy = "" if ";" in step.error else "; --dry-run prints the commands that start them"
            yield PROBLEM, f"{ranks_of(step.job.num_ranks)}{nodes} fail: {step.error}{remedy}"
        elif step is facts.steps[-1]:
            hosts = list(dict.fromkeys(place.host for place in step.places))
            beside = [numbers(place.cores) for place in step.places if place.host == hosts[0]]
            names, cores_of_ranks = (", ".join(texts[:MAX_NAMED]) + ", …" * (len(texts) > MAX_NAMED) for texts in (hosts, beside))
            yield OK, f"{ranks_of(step.job.num_ranks)} on {names} meet; those of {hosts[0]} have the cores {cores_of_ranks}"


def numbers(ordered: Sequence[int]) -> str:
    """Returns numbers such as 0-6 or 0+8."""
    is_range = len(ordered) > 1 and ordered[-1] - ordered[0] + 1 == len(ordered)
    return f"{ordered[0]}-{ordered[-1]}" if is_range else "+".join(map(str, ordered))


def mpi(facts: Facts) -> Lines:
    first = facts.steps[0].places[0] if facts.steps and facts.steps[0].places else None
    if facts.launcher is None or first is None or not LAUNCHERS[facts.launcher.name].provides_mpi:
        return
    library = facts.node["horovod"]
    if first.mpi is None:
        # Under Slurm ranks meet without it.
        severity = PROBLEM if any(available.mpi_problem(job.backend, "torchrun") for job in facts.jobs) else NOTE
        remedy = "build it with the site's mpicc, run launch/setup.sh, or give --launcher torchrun"
        yield severity, f"mpi4py cannot be used ({first.mpi_problem}); {remedy}"
        return
    version, path = first.mpi
    yield OK, f"mpi4py loads {version}, {path}"
    if library is None or not any(declaration_of(job.backend).library == "Horovod" for job in facts.jobs):
        return
    if library == "not found":
        yield PROBLEM, f"Horovod's MPI library is not found; load the module of the MPI it was built with, or run {REBUILD}"
    elif os.path.realpath(library) != os.path.realpath(path):
        yield PROBLEM, f"two MPIs: Horovod loads {library}, mpi4py {path}; leave MPI4PY_LIBMPI and LD_LIBRARY_PATH alone, or run {REBUILD}"


def network(facts: Facts) -> Lines:
    value = (os.environ | (facts.launcher.variables if facts.launcher else {})).get(NCCL_INTERFACE, "")
    interfaces, prefixes = facts.node["interfaces"], tuple(word.strip("=^") for word in value.split(","))
    if value and not any(interface.startswith(prefixes) for interface in interfaces):
        remedy = "name one of them in [variables] of a machine file, or unset it"
        yield facts.problem, f"{NCCL_INTERFACE} is {value}, and {facts.node['host']} has {', '.join(interfaces)}; {remedy}"


def backends(facts: Facts) -> Lines:
    for reason in facts.errors if facts.launcher else ():
        yield PROBLEM, reason if ";" in reason else f"{reason}; --dry-run prints the commands that would be started"
    for reason in dict.fromkeys(facts.reasons.values()):
        names = [name for name, its_reason in facts.reasons.items() if its_reason == reason]
        # With all backends, or those by default, some are always left out.
        lacks_mpi = facts.launcher is not None and reason == available.mpi_problem(names[0], facts.launcher.name)
        is_usual = facts.requested == ALL or (facts.requested is None and lacks_mpi)
        remedy = "" if ";" in reason else "; leave it out of --backends, or run launch/setup.sh"
        yield NOTE if is_usual and facts.runnable else PROBLEM, f"skipped: {', '.join(names)}: {reason}{remedy}"
    names = dict.fromkeys(job.backend for job in facts.runnable)
    if names and facts.launcher and not facts.errors:
        number = "1 run" if len(facts.runnable) == 1 else f"{len(facts.runnable)} runs"
        yield OK, f"{', '.join(names)}: {number}, --device {facts.runnable[0].settings.device}"


def gpus(facts: Facts) -> Lines:
    num_gpus, device, requested = facts.node["num_gpus"], (facts.runnable or facts.jobs)[0].settings.device, facts.settings.device
    if num_gpus:
        models = ", ".join(dict.fromkeys(facts.node["gpu"]))
        text = f"{num_gpus} visible on {facts.node['host']} ({models})"
        if device == "cuda" or requested == "cpu":
            yield OK, text
        else:
            yield NOTE, f"{text}, and the runs are on {device}; TANDEM_DEVICE=cuda launch/setup.sh builds for GPUs"
    elif requested != "cpu" and (facts.gpu_problems or requested == "cuda") and not facts.errors:
        selected = "".join(f", with {name}={value!r}" for name, value in facts.node["visible"].items())
        why = f" ({', '.join(facts.gpu_problems)})" if facts.gpu_problems else ""
        remedy = "ask the batch system for GPUs, such as --gres=gpu:4 or ngpus=4, or give --device cpu"
        yield facts.problem, f"{facts.node['host']} shows none{selected}{why}; {remedy}"


def cores(facts: Facts) -> Lines:
    needed, total = cores_per_rank(facts.settings), facts.node["num_cores"]
    yield OK, f"{facts.node['host']} has {total}; {needed} and {facts.settings.threads} threads for each rank"
    if ignored := binding.owned_variables(facts.node["ignored_variables"] | (facts.launcher.variables if facts.launcher else {})):
        yield NOTE, binding.describe_ignored(ignored)
    fewest = min((place.num_allowed for step in facts.steps for place in step.places), default=needed)
    if facts.launcher and fewest < min(needed, total):
        counted = "hardware threads count as cores only once: give the launcher whole cores in launcher_args, or use fewer --threads"
        yield PROBLEM, f"{facts.launcher.name} gives a rank {fewest} physical cores of the {needed} that it needs; {counted}"
    elif sizes := [str(step.job.num_ranks) for step in facts.steps if are_oversubscribed(step.places, needed)]:
        remedy = "use fewer --threads, or more nodes by --ranks-per-node"
        yield NOTE, f"oversubscribed at {', '.join(sizes)} ranks, where the report gives no speed-up; {remedy}"


def are_oversubscribed(places: Iterable[Place], needed: int) -> bool:
    """Returns whether ranks share cores on a node, as their run would record it."""
    by_node = itertools.groupby(sorted(places, key=lambda place: place.node), lambda place: place.node)
    nodes = [list(of_node) for _, of_node in by_node]
    return any(binding.are_oversubscribed([place.cores for place in node], needed, {}, node[0].quota_cores) for node in nodes)


def memory(facts: Facts) -> Lines:
    def needed(job: Job) -> float:
        settings = workloads.resolve(job.settings, job.degree)
        return state_memory.needed(job.backend, settings, job.num_ranks, job.ranks_per_node, settings.device).node_bytes

    if facts.of_ranks and facts.launcher and not available.runs_elsewhere(facts.jobs, facts.launcher):
        available.expect_memory(facts.runnable)
    largest, available_bytes = max(facts.jobs, key=needed), facts.node["available_bytes"]
    size = f"{largest.settings.workload} with {largest.backend} at {ranks_of(largest.num_ranks)}"
    needs = f"the state of {size} needs {needed(largest) / GB:.3g} GB on a node"
    text = f"{needs}, and {facts.node['host']} has {available_bytes / GB:.3g} GB"
    if needed(largest) <= available_bytes:
        yield OK, f"{text} available; activations and libraries come on top"
    else:
        yield facts.problem, f"{text}; use more nodes by --ranks-per-node, or a smaller workload"


def shared(facts: Facts) -> Lines:
    if facts.launcher is None or not LAUNCHERS[facts.launcher.name].provides_mpi or facts.node["shared_memory"] is None:
        return
    shared_memory, num_ranks = machine.SharedMemory(*facts.node["shared_memory"]), max(job.ranks_per_node for job in facts.jobs)
    text = machine.describe_shared_memory(shared_memory, num_ranks)
    if machine.needed_shared_memory(num_ranks) <= shared_memory.free:
        yield OK, text
    else:
        yield facts.problem, f"{text}; {machine.SHARED_MEMORY_REMEDY}"


def results(facts: Facts) -> Lines:
    folder = files.folder(facts.settings)
    files.expect_writable(folder)
    try:
        # The file has no name, or loses it at once.
        with tempfile.TemporaryFile(dir=existing(folder)) as file:
            reason = lock.lock(file.fileno())
    except OSError as problem:
        yield PROBLEM, f"cannot write records to {folder} ({problem.strerror}); {ELSEWHERE}"
        return
    yield OK, f"{folder.absolute()} can be written"
    if reason:
        yield PROBLEM, f"{existing(folder)} {reason}; give --results on another file system, or start one matrix at a time"
    lock.expect_free(folder, facts.jobs, facts.shares_machine)


def existing(folder: Path) -> Path:
    """Returns the folder, or the innermost folder above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def environment(facts: Facts) -> Lines:
    # launch/setup.sh does not keep another one.
    if facts.launcher and facts.launcher.python[-1] != PYTHON[-1]:
        return
    process = subprocess.run([ROOT / "launch" / "setup.sh", "--check"], capture_output=True, text=True, check=False)
    text = (process.stdout + process.stderr).strip().splitlines()[-1].removeprefix("setup: ")
    where = " on a login node" if process.returncode == 1 and commands.allocation() else ""
    yield PROBLEM if process.returncode else OK, text + where


LINES: dict[str, Callable[[Facts], Lines]] = {
    "launcher": launcher, "ranks": ranks, "MPI": mpi, "network": network, "backends": backends, "GPUs": gpus, "cores": cores,
    "memory": memory, "/dev/shm": shared, "results": results, "environment": environment,
}  # fmt: skip
