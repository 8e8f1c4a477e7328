"""Runs one job from its command to its record, however it ends."""

import contextlib
import dataclasses
import json
import math
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

from common import durable, workloads
from common.backends import file_of
from common.config import SINGLE_RUN, as_arguments, as_json, cores_per_rank, not_for
from common.declarations import ROOT
from common.errors import UserError
from common.progress import Progress
from common.ranks import binding, machine, messages
from common.ranks.launcher_variables import RANKS_PER_NODE, Ranks, expect_variables_argument
from common.ranks.messages import Hang, RankEnded
from common.record import definition, environment, files
from common.record.definition import ENDED_BY_JOB, INTERRUPTED, Record
from common.training import clock
from launch.launchers import batch_systems
from launch.launchers.commands import LAUNCHERS, THREADS_VARIABLE, Launcher, Start, shell_command
from launch.run import failures, processes
from launch.run.plan import Job
from launch.run.processes import Outcome
from launch.run.turns import Run
from launch.trace import profile, timeline

TAIL_LINES, MAX_CAUSES = 50, 20


class Command(NamedTuple):
    """What starts ranks that report to this process: the launcher's argv, and variables for its environment."""

    argv: list[str]
    variables: dict[str, str]


class Ending(NamedTuple):
    """How the processes of a run have ended: the status of its record, and the error; None for a run that completed."""

    status: Literal["ok", "failed", "timeout"]
    error: str | None


@final
class Received:
    """What a run has sent: its last progress, which `on_progress` is called with, its hangs, its errors, and lines that give a reason.

    The lines may stand before the last ones that `processes.run` keeps.
    """

    def __init__(self, on_progress: Callable[[Progress], object]) -> None:
        self._on_progress = on_progress
        self.last_progress: Progress | None = None
        self.hangs: list[Hang] = []
        self.errors: list[RankEnded] = []
        self.causes: list[str] = []

    def on_message(self, message: Progress | Hang | RankEnded) -> None:
        """Keeps a message of the run."""
        if isinstance(message, Hang):
            self.hangs.append(message)
        elif isinstance(message, RankEnded):
            self.errors += [message] if message.error else []
        else:
            self.last_progress = message
            self._on_progress(message)

    def on_line(self, line: str) -> None:
        """Keeps a line that the run has printed, if it gives a reason."""
        if len(self.causes) < MAX_CAUSES and failures.is_cause(line):
            self.causes.append(line)


def start_of(job: Job, launcher: Launcher) -> Start:
    """Returns the Start of a job, for the top folder of the checkout. Raises UserError where a traced job's library is not built."""
    launcher = profile.launcher_for(job.settings, launcher)
    program = (*launcher.python, "-m", f"frameworks.{file_of(job.backend)}", *as_arguments(job.settings, leave_out=not_for(SINGLE_RUN)))
    variables = {THREADS_VARIABLE: str(job.settings.threads)} | binding.without_owned_variables(launcher.variables)
    return Start(launcher, job.num_ranks, job.ranks_per_node, cores_per_rank(job.settings), program, variables)


def command_of(start: Start, further: Mapping[str, str] | None = None) -> Command:
    """Returns the Command of a Start, whose ranks have `further` variables too. A run and a step of --check are both started by it."""
    variables = start.variables | {RANKS_PER_NODE: str(start.ranks_per_node), messages.VARIABLE: secrets.token_hex(8)} | dict(further or {})
    program = (*start.program, expect_variables_argument(variables))
    return Command(start.with_passed(variables)._replace(program=program).argv(), variables)


def run_job(
    job: Job,
    launcher: Launcher,
    time_limit_seconds: float,
    on_progress: Callable[[Progress], object],
    turns_file: Path | None = None,
) -> Run[Record]:
    """Runs a job: a generator that returns its record, the run's own or completed here where the run failed.

    With `turns_file`, the file in which runs side by side agree on their turns, it yields at the end of each turn, as processes.run does.

    The record is there also after an exception, such as KeyboardInterrupt, or closing it has ended the run. Raises UserError where traces
    of an earlier attempt cannot be removed.
    """
    start = start_of(job, launcher)
    launch = {"launcher": launcher.name, "command": shell_command(start), "launched_at": time.time()}
    launch["settings"] = {name: value for name, value in as_json(job.settings).items() if name in not_for(SINGLE_RUN)}
    launch["ignored_variables"] = binding.ignored_variables(launcher.variables)
    of_turns = {clock.TURNS_VARIABLE: clock.node(), clock.TURNS_FILE_VARIABLE: str(turns_file)} if turns_file else {}
    argv, variables = command_of(start, {"TANDEM_LAUNCH": json.dumps(launch)} | of_turns)
    ending, outcome, received = Ending("failed", INTERRUPTED), None, Received(on_progress)
    num_kills_before = machine.num_oom_kills()
    timeline.clear(job.settings)
    # Stopped ranks receive no SIGTERM, which is all that an mpiexec sends them. Those of a cluster's launcher its daemons kill.
    death_signal = signal.SIGTERM if not turns_file or LAUNCHERS[launcher.name].places == "cluster" else signal.SIGKILL
    try:
        outcome = yield from processes.run(
            argv,
            variables,
            mark_of(job),
            ROOT,
            time_limit_seconds,
            received.on_message,
            received.on_line,
            death_signal=death_signal,
            is_here=not launcher.runs_elsewhere(job.num_nodes),
        )
        ending = ending_of(outcome, time_limit_seconds, launcher, received.errors, received.causes)
    except OSError as error:
        ending = Ending("failed", f"{launcher.executable} could not be started: {error.strerror}")
    finally:
        if ending.error == INTERRUPTED and (batch_systems.end_time() or math.inf) <= time.time():
            ending = Ending("failed", ENDED_BY_JOB)
        record = _complete(job, launch, ending, outcome, received, _num_kills_since(num_kills_before))
    if (job.settings.timeline or job.settings.trace) and record.status == "ok":
        timeline.add_to_record(job.settings, record)
        return _written(job, record)
    return record


def _num_kills_since(num_before: int | None) -> int | None:
    """Returns how many processes the kernel's OOM killer has ended since there were `num_before`; None where that is not known."""
    num_kills = machine.num_oom_kills()
    return None if num_before is None or num_kills is None else num_kills - num_before


def record_path(job: Job) -> Path:
    """Returns the path of a job's record, which rank 0 of its run writes."""
    return files.folder(job.settings) / f"{job.settings.run_id}.json"


def mark_of(job: Job) -> str:
    """Returns the mark of all processes of a job's run: the path of its record, which no other run may write at the same time."""
    return str(record_path(job).absolute())


def ending_of(
    outcome: Outcome, time_limit_seconds: float, launcher: Launcher, errors: Sequence[RankEnded] = (), causes: Sequence[str] = ()
) -> Ending:
    """Returns how a run ended. `errors` and `causes`: as in Received.

    Where one rank fails, the others fail as a consequence: the first error is the cause.
    """
    if outcome.timed_out:
        return Ending("timeout", f"ended after the time limit of {time_limit_seconds:g} s")
    if outcome.problem:
        return Ending("failed", outcome.problem)
    if outcome.returncode == 0:
        return Ending("ok", None)
    lines = [*causes, *outcome.last_lines]
    # Lines of other launchers, as of PALS, alone tell the rank that was killed from those that the launcher has ended then.
    first_error = next((ended.error for ended in errors if ended.is_cause or LAUNCHERS[launcher.name].killed), None)
    error = first_error or failures.reported(lines) or failures.describe_exit(outcome.returncode, outcome.last_lines)
    return Ending("failed", error + failures.advice(lines, launcher))


def _complete(
    job: Job, launch: Mapping[str, Any], ending: Ending, outcome: Outcome | None, received: Received, num_oom_kills: int | None
) -> Record:
    """Returns the record of a job that has ended, rewritten here unless the run has recorded that it completed.

    `outcome`: None for a run that was interrupted or not started.
    """
    last_lines, problem = (outcome.last_lines, outcome.problem) if outcome else ([], None)
    # No process of the run is left that could write one.
    durable.remove_parts(record_path(job))
    if (record := recorded(job)) is None:
        settings = workloads.resolve(job.settings, job.degree)
        plan = workloads.batch_plan(settings, job.degree)
        record = definition.new(job.backend, settings, Ranks(size=job.num_ranks), plan, launch, environment.describe())
    status, error = ending
    if (status, record.status) == ("ok", "ok"):
        return record
    # The ranks' reports follow from a problem of the processes.
    if status == "failed" and received.hangs and not problem:
        error = failures.describe_hang(received.hangs, job.num_ranks)
    elif status == "failed" and not problem and (killed := failures.killed_rank(last_lines, record.pids_by_rank or [])):
        description = failures.describe_killed(killed, received.last_progress, num_oom_kills, job.ranks_per_node)
        is_reported = received.errors or failures.reported([*received.causes, *last_lines])
        # Where a rank is killed, the others fail as a consequence and report that; where it is not known which, a report may be the cause.
        error = description if killed.rank is not None or not is_reported else f"{error}; then {description}"
    if record.status == "ok":
        # The run had trained, compared its replicas and recorded everything.
        record.launcher_error = error
    elif record.status != "diverged":
        record.status = "failed" if status == "ok" else status
        record.error = error or record.error or "ended without a result"
    record.output_tail = last_lines[-TAIL_LINES:]
    return _written(job, record)


def recorded(job: Job) -> Record | None:
    """Returns the record of a job on disk; None where there is none, or none that can be read."""
    with contextlib.suppress(OSError, UserError):
        return files.read(record_path(job))
    return None


def _written(job: Job, record: Record) -> Record:
    """Writes a record and returns it as it is on disk. Where it cannot be written, it is that of a failed run."""
    try:
        files.write(record_path(job), record)
        return files.read(record_path(job))
    except (OSError, UserError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        unwritten = f"its record could not be written ({reason})"
        error = f"{record.error}; {unwritten}" if record.error else unwritten
        return dataclasses.replace(record, status="failed", error=error)
