"""One job from its command to its record, however it ends."""

import json
import shlex
import time

from common import records, workloads
from common.ranks import Ranks
from launch import launchers, processes

TAIL_LINES = 50


def typed(argv, variables):
    """A command as one would type it."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in variables.items()), shlex.join(argv)])


def run_job(job, launcher, executable, time_limit_seconds, on_progress):
    """Runs a job and returns its record: the run's own, completed here where the run could not bring it to a good end.

    The record is there also after an exception, such as KeyboardInterrupt, has ended the run.
    """
    argv, variables = launchers.command(job, launcher, executable)
    launch = {"launcher": launcher, "command": typed(argv, variables), "launched_at": time.time()}
    variables = variables | {"TANDEM_LAUNCH": json.dumps(launch)}
    error, last_lines = "interrupted", []
    try:
        outcome = processes.run(argv, variables, job.settings.run_id, records.ROOT, time_limit_seconds, on_progress)
        error, last_lines = _error_of(outcome, time_limit_seconds), outcome.last_lines
    except OSError as problem:
        error = f"{executable} could not be started: {problem.strerror}"
    finally:
        record = _complete(job, launch, error, last_lines)
    return record


def _error_of(outcome, time_limit_seconds):
    if outcome.timed_out:
        return f"ended after the time limit of {time_limit_seconds:g} s"
    return f"ended with exit status {outcome.returncode}" if outcome.returncode else None


def _complete(job, launch, error, last_lines):
    """The record of a job that has ended. Where there was an error, it is noted and the record written anew.

    What a run told of itself is the better explanation, except for a run that did not come to tell that it failed.
    """
    path = records.folder(job.settings) / f"{job.settings.run_id}.json"
    if path.exists():
        record = records.read(path)
    else:
        record = records.new(job.backend, workloads.resolve(job.settings, job.ranks), Ranks(size=job.ranks), launch, records.environment())
    if record["status"] == "ok" and not error:
        return record
    timed_out = bool(error) and error.startswith("ended after the time limit")
    record["status"] = "timeout" if timed_out else "failed"
    record["error"] = record["error"] or error or "ended without a result"
    record["output_tail"] = last_lines[-TAIL_LINES:]
    records.write(path, record)
    return record
