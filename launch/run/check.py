"""launch/matrix.sh --check: what a matrix would use, and what would go wrong, one line each.

It runs nothing and leaves no file.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from common.config import Settings
from common.declarations import ROOT
from common.errors import UserError
from launch.launchers import commands, detect
from launch.launchers.commands import LAUNCHERS, VENV_BIN, Launcher, Start
from launch.launchers.machine_files import Machine
from launch.run import available, failures, node
from launch.run.check_lines import LINES, PROBLEM, Level, Seen
from launch.run.plan import Job

if TYPE_CHECKING:
    from launch.run.options import Matrix

# The end of the message of a framework that is built for GPUs where it finds none.
FINDS_NONE = "finds no GPU"
START_SECONDS = 30


class Line(NamedTuple):
    """A line of the screen."""

    level: Level
    subject: str
    text: str


def run(matrix: Matrix, machine: Machine, settings: Settings, jobs: list[Job], choose: Callable[[], Launcher]) -> int:
    """Prints the screen of a matrix and returns the exit status. `choose` raises NotFound where there is no launcher."""
    lines = screen(look(matrix, machine, settings, jobs, choose))
    for level, subject, text in lines:
        print(f"{level:8}{subject:12} {text}")
    return 1 if any(line.level == PROBLEM for line in lines) else 0


def screen(seen: Seen) -> list[Line]:
    """Returns all lines. A UserError is a problem, which has one line though several subjects may meet it."""
    lines: dict[str, Line] = {}
    for subject, lines_of in LINES.items():
        try:
            for level, text in lines_of(seen):
                lines.setdefault(text, Line(level, subject, text))
        except UserError as problem:
            lines.setdefault(str(problem), Line(PROBLEM, subject, str(problem)))
    return list(lines.values())


def look(matrix: Matrix, machine: Machine, settings: Settings, jobs: list[Job], choose: Callable[[], Launcher]) -> Seen:
    """Returns what is seen of a matrix. The backends are asked as in a dry run: elsewhere only inside an allocation."""
    of_options = {"requested": matrix.backends, "shares_machine": matrix.share_machine}
    try:
        launcher = choose()
    except detect.NotFound as missing:
        return Seen(settings, jobs, node.describe(), choice=str(missing), **of_options)
    answers, runnable, reasons, stops = available.Answers({}, of_ranks=False), [], {}, []
    try:
        available.check(jobs, launcher)
        answers = available.ask_for(jobs, launcher, dry_run=True, with_node=True)
        runnable, reasons = available.runnable_by(answers, jobs)
        try_start(launcher)
    except UserError as problem:
        stops.append(str(problem))
    asked_node = next((answer["node"] for answer in answers.by_backend.values() if "node" in answer), None)
    is_of_ranks = asked_node is not None and answers.of_ranks
    gpu_problems = dict.fromkeys(answer.get("cuda") for answer in answers.by_backend.values())
    return Seen(
        settings,
        jobs,
        asked_node or node.describe(),
        of_ranks=is_of_ranks,
        choice=describe_choice(matrix.launcher, matrix.machine_file if machine.launcher else None, launcher),
        launcher=launcher,
        runnable=tuple(runnable),
        reasons=reasons,
        stops=tuple(stops),
        blind=tuple(problem for problem in gpu_problems if problem and problem.endswith(FINDS_NONE)),
        **of_options,
    )


def try_start(launcher: Launcher) -> None:
    """Starts `true` with a launcher that takes its nodes from a list, where that is this node alone. Raises UserError if it fails."""
    if commands.allocation() or launcher.hosts or LAUNCHERS[launcher.name].places != "hosts":
        return
    try:
        argv = Start(launcher, 1, 1, 1, ("true",), {}).argv()
        process = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=START_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise UserError(f"{launcher.name} does not start: {problem}; give another --launcher") from problem
    lines = (process.stdout + process.stderr).splitlines()
    if process.returncode:
        raise UserError(failures.reported(lines) or f"{failures.describe_exit(process.returncode, lines)}; give another --launcher")


def describe_choice(option: str | None, machine_file: str | None, launcher: Launcher) -> str:
    """Describes how a launcher was chosen."""
    if option or machine_file:
        return "by --launcher" if option else f"by the machine file {machine_file}"
    if commands.allocation() and LAUNCHERS[launcher.name].allocations:
        return "that of the allocation"
    if launcher.name == "torchrun":
        return "since this Python has no mpi4py"
    return "the environment's" if launcher.executable.startswith(str(VENV_BIN)) else "found in PATH"
