"""Failed and unfinished runs, runs that missed the target or whose launcher failed, and files that are not records, with reasons."""

import socket

import psutil

from common.record.definition import Record
from common.terminal import filled
from launch.report.findings import Cells, Findings
from launch.report.runs import Runs, comparisons

QUESTION = "What failed, and why?"
STATUSES = {"diverged": "diverged", "failed": "failed", "timeout": "timed out", "started": "unfinished"}
MISSED = "target not reached"
COLUMNS = ("run", "status", "reason", "comparison", "backend", "ranks")
UNFINISHED = "still running, or killed before its record was complete"


def failures_of(runs: Runs) -> list[Cells]:
    """Returns a row for each failure among all runs, and for each file that is not a record."""
    rows: list[Cells] = [
        dict(zip(COLUMNS, (record.settings.run_id, *reason, comparison.name, record.backend, record.num_ranks), strict=True))
        for comparison in [*runs.comparisons, *comparisons(runs.not_compared)] for record in comparison.records
        if (reason := failure(record))
    ]  # fmt: skip
    return [*rows, *(dict(zip(COLUMNS, (file.path.name, "not a record", file.reason), strict=False)) for file in runs.damaged)]


def answer(runs: Runs) -> Findings:
    """Answers for all runs and files."""
    failures, num_files = failures_of(runs), len(runs.compared) + len(runs.not_compared) + len(runs.damaged)
    if not failures:
        return Findings([f"Nothing: all {num_files} runs completed."], [])
    statuses = [row["status"] for row in failures]
    counts = [f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses)]
    return Findings([f"Of {num_files} files: {', '.join(counts)}."], filled("Unsuccessful runs", failures))


def failure(record: Record) -> tuple[str, str] | None:
    """Returns the status of a run and the reason where it failed, is unfinished, has no time to solution, or its launcher failed."""
    resumed = f"resumed from a checkpoint after {record.resumed_after_epochs} epochs"
    if record.status != "ok":
        pid = killed_process(record)
        killed = pid and ("ended without a result", f"rank 0 was process {pid} of this node, which does not run any more")
        return killed or (STATUSES[record.status], record.error or UNFINISHED)
    if record.reached is False and record.accuracy is None:
        return MISSED, f"{resumed}, with no epoch left to train"
    if record.reached is False:
        loss = "".join(f", loss {value:.4g}" for value in record.eval_losses[-1:] if value is not None)
        return MISSED, f"{record.metric} {record.accuracy:.4f}{loss} after {len(record.accuracies)} epochs; the target is {record.target:g}"
    if record.reached and record.time_to_solution_seconds is None:
        return "no time to solution", resumed
    if record.launcher_error:
        return "completed; its launcher failed", record.launcher_error
    return None


def killed_process(record: Record) -> int | None:
    """Returns the process ID of rank 0 of a run that was killed on this node. None also where that is not known."""
    if record.status != "started" or not record.pids_by_rank or record.environment.host != socket.gethostname():
        return None
    pid = record.pids_by_rank[0]
    return None if psutil.pid_exists(pid) else pid
