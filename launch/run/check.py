"""launch/matrix.sh --check: what a matrix would use, and what would go wrong, one line each. Runs nothing and leaves no file."""

from typing import NamedTuple

from common.config import Settings
from common.errors import UserError
from launch.launchers import commands, detect
from launch.launchers.commands import LAUNCHERS, PYTHON, VENV_BIN, Launcher
from launch.run import available, node
from launch.run.check_lines import LINES, NOTE, PROBLEM
from launch.run.plan import Job

# The end of what a framework that is built for GPUs says where it has none.
FINDS_NONE = "finds no GPU"


class Seen(NamedTuple):
    """What the lines are about. The defaults are those of a matrix that would stop before it asks the backends."""

    settings: Settings
    jobs: list[Job]
    # What launch/run/node.py tells of the node that was asked, and whether ranks run there.
    node: dict
    of_ranks: bool = False
    # How the launcher was chosen, or why there is none.
    choice: str = ""
    launcher: Launcher | None = None
    # What of the jobs can run, on the device of the matrix, and {backend or size: why it cannot}.
    runnable: tuple[Job, ...] = ()
    reasons: dict[str, str] = {}  # noqa: RUF012
    # Why the matrix would stop, and what frameworks say that are built for GPUs and see none.
    stops: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()
    # What --backends says, and --share-machine.
    requested: str | None = None
    shares_machine: bool = False

    @property
    def problem(self):
        """The level of what is wrong on the node, where that may not be one of the ranks'."""
        return PROBLEM if self.of_ranks else NOTE

    @property
    def python(self):
        """The ranks' Python."""
        return (self.launcher.python if self.launcher else PYTHON)[-1]


def run(matrix, machine, settings, jobs, choose):
    """Prints the screen of a matrix and returns the exit status. `choose`: a function that returns its Launcher."""
    lines = screen(look(matrix, machine, settings, jobs, choose))
    for level, subject, text in lines:
        print(f"{level:8}{subject:12} {text}")
    return 1 if any(level == PROBLEM for level, *_ in lines) else 0


def screen(seen):
    """[(level, subject, text)] of all lines; a UserError is a problem, which is said once."""
    lines = {}
    for subject, lines_of in LINES.items():
        try:
            for level, text in lines_of(seen):
                lines.setdefault(text, (level, subject, text))
        except UserError as problem:
            lines.setdefault(str(problem), (PROBLEM, subject, str(problem)))
    return list(lines.values())


def look(matrix, machine, settings, jobs, choose):
    """What is Seen of a matrix. The backends are asked as a dry run asks them: elsewhere only inside an allocation."""
    common = {"settings": settings, "jobs": jobs, "requested": matrix.backends, "shares_machine": matrix.share_machine}
    try:
        launcher = choose()
    except detect.NotFound as missing:
        return Seen(**common, node=node.facts(), choice=str(missing))
    common |= {"launcher": launcher, "choice": how_chosen(matrix.launcher, machine.launcher and matrix.machine_file, launcher)}
    answers = {}

    def ask(*question):
        answers.update(available.answers_of(*question, module="launch.run.node"))
        return answers

    try:
        available.check(jobs, launcher)
        runnable, reasons = available.settled(jobs, launcher, dry_run=True, ask_backends=ask)
        common |= {"runnable": tuple(runnable), "reasons": reasons}
    except UserError as problem:
        common["stops"] = (str(problem),)
    if not answers:
        return Seen(**common, node=node.facts())
    of_ranks = not available.runs_elsewhere(jobs, launcher) or available.can_ask_elsewhere(launcher)
    blind = dict.fromkeys(reason for answer in answers.values() if (reason := answer.get("cuda")) and reason.endswith(FINDS_NONE))
    return Seen(**common, node=next(iter(answers.values()))["node"], of_ranks=of_ranks, blind=tuple(blind))


def how_chosen(option, machine_file, launcher):
    """By what a launcher was chosen, in words."""
    if option or machine_file:
        return "by --launcher" if option else f"by the machine file {machine_file}"
    if commands.allocation() and LAUNCHERS[launcher.name].allocations:
        return "that of the allocation"
    if launcher.name == "torchrun":
        return "since this Python has no mpi4py"
    return "the environment's" if launcher.executable.startswith(str(VENV_BIN)) else "found in PATH"
