"""launch/matrix.sh --check: what a matrix would use, and what would go wrong, one line each.

It starts the ranks of each size as a run does, trains nothing and leaves no file. Each function of LINES yields the lines of its subject,
from the Facts of a matrix. The text of a problem ends in its remedy.
"""

import itertools
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from common.backends import ALL, declaration_of
from common.config import Settings, cores_per_rank
from common.declarations import ROOT
from common.errors import UserError
from common.ranks import binding, machine
from common.record import files
from common.words import ranks_of
from launch.launchers import batch_systems, commands, detect
from launch.launchers.commands import LAUNCHERS, PYTHON, Launcher
from launch.run import available, lock
from launch.run.available import Step
from launch.run.node import Node, Place
from launch.run.options import Matrix
from launch.run.plan import Job

Severity = Literal["ok", "note", "problem"]
# The severity and the text of each line.
Lines = Iterator[tuple[Severity, str]]
OK: Severity = "ok"
NOTE: Severity = "note"
PROBLEM: Severity = "problem"
REBUILD = "TANDEM_MPICC=/path/of/its/mpicc launch/setup.sh"
# The end of the message of a framework that is built for GPUs where it finds none.
FINDS_NONE = "finds no GPU"
MAX_NAMED = 8


class Facts(NamedTuple):
    """What is known of a matrix. The defaults are those of a matrix that would stop before it asks the backends."""

    settings: Settings
    jobs: list[Job]
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
    def node(self) -> Node | None:
        """What rank 0 has found on its node; None where no ranks were started, or they have failed."""
        return next((step.places[0].of_node for step in self.steps if step.places), None)

    @property
    def host(self) -> str:
        """The name of that node."""
        return next((step.places[0].host for step in self.steps if step.places), "")


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
    """Returns what is known of a matrix. Outside the allocation that its launcher needs no node is asked."""
    facts = Facts(settings, jobs, requested=matrix.backends, shares_machine=matrix.share_machine)
    try:
        launcher = choose()
    except detect.NotFound as missing:
        return facts._replace(errors=(str(missing),))
    facts = facts._replace(launcher=launcher)
    try:
        available.check(jobs, launcher)
        if available.waits_for_nodes(launcher):
            return facts
        facts = facts._replace(steps=tuple(steps_of(jobs, launcher)))
        answers = available.ask_for(jobs, launcher)
        gpu_problems = dict.fromkeys(problem for answer in answers.values() if (problem := answer.get("cuda") or "").endswith(FINDS_NONE))
        facts = facts._replace(gpu_problems=tuple(gpu_problems))
        runnable, reasons = available.runnable_by(answers, jobs)
        facts = facts._replace(runnable=tuple(runnable), reasons=reasons)
        available.expect_memory(runnable, launcher)
    except UserError as problem:
        return facts._replace(errors=(str(problem),))
    return facts


def steps_of(jobs: Sequence[Job], launcher: Launcher) -> list[Step]:
    """Starts the ranks of each size, the smallest first, up to the first that does not start."""
    steps: list[Step] = []
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
    yield OK, f"{name}, {executable}"
    if (name_of_allocation := commands.allocation()) and (end := batch_systems.end_time()):
        minutes = max(0, end - time.time()) / 60
        yield OK, f"allocation {name_of_allocation} has {minutes:.0f} min left; --resume runs in another what does not end in it"
    elif available.waits_for_nodes(facts.launcher):
        yield NOTE, f"outside an allocation {name} would wait for nodes, of which nothing is known here; check inside one"


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
    if first.mpi is None:
        # A single rank, ranks with MASTER_ADDR and those of Slurm meet without it.
        severity = PROBLEM if any(available.mpi_problem(job.backend, "torchrun") for job in facts.jobs) else NOTE
        remedy = "build it with the site's mpicc, run launch/setup.sh, or give --launcher torchrun"
        yield severity, f"mpi4py cannot be used ({first.mpi_problem}); {remedy}"
        return
    version, path = first.mpi
    yield OK, f"mpi4py loads {version}, {path}"
    library = facts.node["horovod"] if facts.node else None
    if library is None or not any(declaration_of(job.backend).library == "Horovod" for job in facts.jobs):
        return
    if library == "not found":
        yield PROBLEM, f"Horovod's MPI library is not found; load the module of the MPI it was built with, or run {REBUILD}"
    elif os.path.realpath(library) != os.path.realpath(path):
        yield PROBLEM, f"two MPIs: Horovod loads {library}, mpi4py {path}; leave MPI4PY_LIBMPI and LD_LIBRARY_PATH alone, or run {REBUILD}"


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
    device, requested = (facts.runnable or facts.jobs)[0].settings.device, facts.settings.device
    if facts.node and facts.node["num_gpus"]:
        models = ", ".join(dict.fromkeys(facts.node["gpu"]))
        text = f"{facts.node['num_gpus']} visible on {facts.host} ({models})"
        if device == "cuda" or requested == "cpu":
            yield OK, text
        else:
            yield NOTE, f"{text}, and the runs are on {device}; TANDEM_DEVICE=cuda launch/setup.sh builds for GPUs"
    elif facts.node and requested != "cpu" and (facts.gpu_problems or requested == "cuda") and not facts.errors:
        selected = "".join(f", with {name}={value!r}" for name, value in facts.node["visible"].items())
        why = f" ({', '.join(facts.gpu_problems)})" if facts.gpu_problems else ""
        remedy = "ask the batch system for GPUs, such as --gres=gpu:4 or ngpus=4, or give --device cpu"
        yield PROBLEM, f"{facts.host} shows none{selected}{why}; {remedy}"


def cores(facts: Facts) -> Lines:
    if not facts.node:
        return
    needed, total = cores_per_rank(facts.settings), facts.node["num_cores"]
    yield OK, f"{facts.host} has {total}; {needed} and {facts.settings.threads} threads for each rank"
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


def shared(facts: Facts) -> Lines:
    if not facts.node or not facts.launcher or not LAUNCHERS[facts.launcher.name].provides_mpi or not facts.node["shared_memory"]:
        return
    shared_memory, num_ranks = machine.SharedMemory(*facts.node["shared_memory"]), max(job.ranks_per_node for job in facts.jobs)
    text = machine.describe_shared_memory(shared_memory, num_ranks)
    if machine.needed_shared_memory(num_ranks) <= shared_memory.free:
        yield OK, text
    else:
        yield PROBLEM, f"{text}; {machine.SHARED_MEMORY_REMEDY}"


def results(facts: Facts) -> Lines:
    folder = files.folder(facts.settings)
    files.expect_writable(folder)
    try:
        # The file has no name, or loses it at once.
        with tempfile.TemporaryFile(dir=next(path for path in (folder, *folder.parents) if path.exists())):
            yield OK, f"{folder.absolute()} can be written"
    except OSError as problem:
        yield PROBLEM, f"cannot write records to {folder} ({problem.strerror}); make room, or give another folder with --results"
        return
    lock.expect_free(folder, facts.jobs, facts.shares_machine)


def environment(facts: Facts) -> Lines:
    # launch/setup.sh does not keep another one.
    if facts.launcher and facts.launcher.python[-1] != PYTHON[-1]:
        return
    process = subprocess.run([ROOT / "launch" / "setup.sh", "--check"], capture_output=True, text=True, check=False)
    text = (process.stdout + process.stderr).strip().splitlines()[-1].removeprefix("setup: ")
    where = " on a login node" if process.returncode == 1 and commands.allocation() else ""
    yield PROBLEM if process.returncode else OK, text + where


LINES: dict[str, Callable[[Facts], Lines]] = {
    "launcher": launcher, "ranks": ranks, "MPI": mpi, "backends": backends, "GPUs": gpus, "cores": cores, "/dev/shm": shared,
    "results": results, "environment": environment,
}  # fmt: skip
