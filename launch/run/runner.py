"""Runs one job from its command to its record, however it ends."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Sequence

from common import durable, workloads
from common.backends import file_of
from common.config import as_arguments, cores_per_rank
from common.errors import UserError
from common.process import arrival, inherited, out_of_memory, turns
from common.process.ranks import Ranks
from common.process.watchdog import Hang
from common.record import reading, records
from common.record.definition import Record
from launch.launchers.commands import LAUNCHERS, THREADS_VARIABLE, Start, shell_command
from launch.run import failures, processes
from launch.run.plan import Job
from launch.trace import traced

TAIL_LINES, MAX_CAUSES = 50, 20


def start_of(job, launcher):
    """The Start of a job, to be run in the top folder of the checkout. Raises UserError where the library of a traced one is not built."""
    launcher = traced.launcher_for(job.settings, launcher)
    program = (*launcher.python, "-m", f"frameworks.{file_of(job.backend)}", *as_arguments(job.settings))
    variables = {THREADS_VARIABLE: str(job.settings.threads)} | inherited.without_owned(launcher.variables)
    return Start(launcher, job.num_ranks, job.ranks_per_node, cores_per_rank(job.settings), program, variables)


def run_job(job, launcher, time_limit_seconds, on_progress, turn_share=None):
    """Runs a job: a generator that returns its record, the run's own or completed here where the run failed.

    With `turn_share`, the file in which runs side by side agree on their turns, it yields at the end of each turn, as processes.run does.
    The record is there also after an exception, such as KeyboardInterrupt, or closing it has ended the run. Raises UserError where traces
    of an earlier attempt cannot be removed.
    """
    start = start_of(job, launcher)
    launch = {"launcher": launcher.name, "command": shell_command(start), "launched_at": time.time()}
    launch["ignored_variables"] = inherited.owned(os.environ | launcher.variables)
    of_turns = {turns.VARIABLE: turns.node(), turns.SHARE_VARIABLE: str(turn_share)} if turn_share else {}
    variables = start.variables | {"TANDEM_LAUNCH": json.dumps(launch)} | of_turns
    argv = start.with_passed(variables)._replace(program=(*start.program, arrival.argument(variables))).argv()
    ending, last_lines, last_progress, hangs, problem = ("failed", "interrupted"), [], None, [], None
    causes = []
    num_kills_before = out_of_memory.num_kills()
    traced.clear(job.settings)

    def on_message(message):
        nonlocal last_progress
        if isinstance(message, Hang):
            hangs.append(message)
        else:
            last_progress = message
            on_progress(message)

    def on_line(line):
        if len(causes) < MAX_CAUSES and failures.is_cause(line):
            causes.append(line)

    # Stopped ranks receive no SIGTERM, which is all that an mpiexec sends them. Those of a cluster's launcher its daemons kill.
    death_signal = signal.SIGTERM if not turn_share or LAUNCHERS[launcher.name].places == "cluster" else signal.SIGKILL
    try:
        outcome = yield from processes.run(
            argv, variables, mark_of(job), records.ROOT, time_limit_seconds, on_message, on_line, death_signal=death_signal
        )
        ending, last_lines, problem = ending_of(outcome, time_limit_seconds, launcher, causes), outcome.last_lines, outcome.problem
    except OSError as error:
        ending = "failed", f"{launcher.executable} could not be started: {error.strerror}"
    finally:
        num_kills = None if num_kills_before is None else out_of_memory.num_kills() - num_kills_before
        record = _complete(job, launch, ending, problem, last_lines, last_progress, hangs, num_kills, causes)
    if (job.settings.timeline or job.settings.trace) and record.status == "ok":
        records.update(record, traced.summary(job.settings))
        return _written(job, record)
    return record


def record_path(job):
    """The path of a job's record, which rank 0 of its run writes."""
    return records.folder(job.settings) / f"{job.settings.run_id}.json"


def mark_of(job):
    """The mark of all processes of a job's run: its record, which no other run may write at the same time."""
    return str(record_path(job).absolute())


def ending_of(outcome, time_limit_seconds, launcher, causes: Sequence[str] = ()) -> tuple[str, str | None]:
    """Returns (status, error) of a run whose processes have ended; the error is None for a run that completed.

    `causes`: lines that say why it failed, which may stand before the last ones that are kept. Where one rank fails, the others fail of it:
    the first error is the cause.
    """
    if outcome.timed_out:
        return "timeout", f"ended after the time limit of {time_limit_seconds:g} s"
    if outcome.problem:
        return "failed", outcome.problem
    if outcome.returncode == 0:
        return "ok", None
    lines = [*causes, *outcome.last_lines]
    error = failures.reported(lines) or failures.describe_exit(outcome.returncode, outcome.last_lines)
    return "failed", error + failures.advice(lines, launcher)


def _complete(job, launch, ending, problem, last_lines, last_progress, hangs, num_oom_kills, causes):
    """The record of a job that has ended, rewritten here unless the run has recorded that it completed.

    `problem`: the cause, where it is known; the ranks' reports follow from it.
    """
    # No process of it is left that could write one.
    durable.remove_left(record_path(job), at_least_seconds=0)
    if (record := recorded(job)) is None:
        settings = workloads.resolve(job.settings, job.degree)
        plan = workloads.batch_plan(settings, job.degree)
        record = records.new(job.backend, settings, Ranks(size=job.num_ranks), plan, launch, records.environment())
    status, error = ending
    if (status, record.status) == ("ok", "ok"):
        return record
    if status == "failed" and hangs and not problem:
        error = failures.describe_hang(hangs, job.num_ranks)
    elif status == "failed" and not problem and (killed := failures.killed_rank(last_lines, record.pids_by_rank or [])):
        description = failures.describe_killed(killed, last_progress, num_oom_kills, job.ranks_per_node)
        is_reported = failures.reported([*causes, *last_lines]) is not None
        # Where a rank is killed, the others fail of it and report that; where it is not known which, a report may be the cause.
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
    """The record of a job on disk; None where there is none, or none that can be read."""
    with contextlib.suppress(OSError, UserError):
        return reading.read(record_path(job))
    return None


def _written(job, record):
    """The record as it is on disk when it has been written. Where it cannot be, the run has failed and the record is nowhere else."""
    try:
        records.write(record_path(job), record)
        return reading.read(record_path(job))
    except (OSError, UserError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        unwritten = f"its record could not be written ({reason})"
        required = {name: getattr(record, name) for name in records.required()}
        error = f"{record.error}; {unwritten}" if record.error else unwritten
        return reading.parsed(records.text_of(Record(**required, status="failed", error=error)))
