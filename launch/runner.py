"""One job from its command to its record, however it ends."""

import json
import time

from common import records, workloads
from common.process import out_of_memory, turns
from common.process.ranks import Ranks
from common.process.watchdog import Hang
from launch import failures, processes
from launch.launchers import commands
from launch.trace import traced

TAIL_LINES = 50


def run_job(job, launcher, time_limit_seconds, on_progress, side_by_side=False):
    """Runs a job: a generator that returns its record, the run's own or completed here where the run failed.

    With `side_by_side` it yields at the end of each turn, as processes.run does. The record is there also after an exception, such as
    KeyboardInterrupt, or closing it has ended the run. Raises UserError where traces of an earlier attempt cannot be removed.
    """
    argv, variables = commands.command(job, launcher)
    launch = {"launcher": launcher.name, "command": commands.shell_command(argv, variables), "launched_at": time.time()}
    variables = variables | {"TANDEM_LAUNCH": json.dumps(launch)} | ({turns.VARIABLE: turns.node()} if side_by_side else {})
    ending, last_lines, last_progress, hangs = ("failed", "interrupted"), [], None, []
    num_kills_before = out_of_memory.num_kills() or 0
    traced.clear(job.settings)

    def on_message(message):
        nonlocal last_progress
        if isinstance(message, Hang):
            hangs.append(message)
        else:
            last_progress = message
            on_progress(message)

    try:
        outcome = yield from processes.run(argv, variables, mark_of(job), records.ROOT, time_limit_seconds, on_message)
        ending, last_lines = ending_of(outcome, time_limit_seconds), outcome.last_lines
    except OSError as problem:
        ending = "failed", f"{launcher.executable} could not be started: {problem.strerror}"
    finally:
        num_kills = (out_of_memory.num_kills() or 0) - num_kills_before
        record = _complete(job, launch, ending, last_lines, last_progress, hangs, num_kills)
    if (job.settings.timeline or job.settings.trace) and record["status"] == "ok":
        record |= traced.summary(job.settings)
        records.write(record_path(job), record)
    return record


def record_path(job):
    """Where a job's record is, which rank 0 of its run writes."""
    return records.folder(job.settings) / f"{job.settings.run_id}.json"


def mark_of(job):
    """What all processes of a job's run are marked with: its record, which no other run may write at the same time."""
    return str(record_path(job).absolute())


def ending_of(outcome, time_limit_seconds):
    """(status, error) of a run whose processes have ended; the error is None for a run that completed.

    Where one rank fails, the others fail of it: the first error is the cause.
    """
    if outcome.timed_out:
        return "timeout", f"ended after the time limit of {time_limit_seconds:g} s"
    if outcome.returncode == 0:
        return "ok", None
    error = next((line.removeprefix("error: ") for line in outcome.last_lines if line.startswith("error: ")), None)
    return "failed", error or f"ended with exit status {outcome.returncode}"


def _complete(job, launch, ending, last_lines, last_progress, hangs, num_oom_kills):
    """The record of a job that has ended, rewritten here unless the run has recorded that it completed."""
    path = record_path(job)
    if path.exists():
        record = records.read(path)
    else:
        record = records.new(
            job.backend, workloads.resolve(job.settings, job.degree), Ranks(size=job.num_ranks), launch, records.environment()
        )
    status, error = ending
    if (status, record["status"]) == ("ok", "ok"):
        return record
    if status == "failed" and hangs:
        error = failures.describe_hang(hangs, job.num_ranks)
    elif status == "failed" and (killed := failures.killed_rank(last_lines, record.get("pids_by_rank") or [])):
        # Where a rank is killed, the others fail of it, and have reported that.
        error = failures.describe_killed(killed, last_progress, num_oom_kills)
    record["status"] = "failed" if status == "ok" else status
    record["error"] = error or record["error"] or "ended without a result"
    record["output_tail"] = last_lines[-TAIL_LINES:]
    records.write(path, record)
    return record
