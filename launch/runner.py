"""One job from its command to its record, however it ends."""

import json
import shlex
import time

from common import records, workloads
from common.ranks import Ranks
from common.stalls import Standstill
from launch import deaths, launchers, processes, standstills
from launch.trace import traced

TAIL_LINES = 50


def typed(argv, variables):
    """A command as one would type it."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in variables.items()), shlex.join(argv)])


def run_job(job, launcher, time_limit_seconds, on_progress):
    """Runs a job and returns its record: the run's own, completed here where the run could not bring it to a good end.

    The record is there also after an exception, such as KeyboardInterrupt, has ended the run. Raises UserError where traces
    of an earlier attempt cannot be removed.
    """
    argv, variables = launchers.command(job, launcher)
    launch = {"launcher": launcher.name, "command": typed(argv, variables), "launched_at": time.time()}
    variables = variables | {"TANDEM_LAUNCH": json.dumps(launch)}
    ending, last_lines, heard, stood = ("failed", "interrupted"), [], [], []
    traced.clear(job.settings)

    def hear(told):
        if isinstance(told, Standstill):
            stood.append(told)
        else:
            heard[:] = [told]
            on_progress(told)

    try:
        outcome = processes.run(argv, variables, job.settings.run_id, records.ROOT, time_limit_seconds, hear)
        ending, last_lines = ending_of(outcome, time_limit_seconds), outcome.last_lines
    except OSError as problem:
        ending = "failed", f"{launcher.executable} could not be started: {problem.strerror}"
    finally:
        record = _complete(job, launch, ending, last_lines, heard, stood)
    if (job.settings.timeline or job.settings.trace) and record["status"] == "ok":
        record |= traced.account(job.settings)
        records.write(records.folder(job.settings) / f"{job.settings.run_id}.json", record)
    return record


def ending_of(outcome, time_limit_seconds):
    """(status, error) of a run whose processes have ended; the error is None for a good end.

    Where one rank fails, the others fail of it: what was told first is the cause.
    """
    if outcome.timed_out:
        return "timeout", f"ended after the time limit of {time_limit_seconds:g} s"
    if outcome.returncode == 0:
        return "ok", None
    told = next((line.removeprefix("error: ") for line in outcome.last_lines if line.startswith("error: ")), None)
    return "failed", told or f"ended with exit status {outcome.returncode}"


def _complete(job, launch, ending, last_lines, heard, stood):
    """The record of a job that has ended, written anew unless the run itself told of its good end."""
    path = records.folder(job.settings) / f"{job.settings.run_id}.json"
    if path.exists():
        record = records.read(path)
    else:
        record = records.new(job.backend, workloads.resolve(job.settings, job.ranks), Ranks(size=job.ranks), launch, records.environment())
    status, error = ending
    if (status, record["status"]) == ("ok", "ok"):
        return record
    if status == "failed" and stood:
        error = standstills.told(stood, job.ranks)
    elif status == "failed" and (death := deaths.death_in(last_lines, record.get("pids_by_rank") or [])):
        # Where a rank is killed, the others fail of it, and have told so.
        error = deaths.told(death, heard[-1] if heard else None)
    record["status"] = "failed" if status == "ok" else status
    record["error"] = error or record["error"] or "ended without a result"
    record["output_tail"] = last_lines[-TAIL_LINES:]
    records.write(path, record)
    return record
