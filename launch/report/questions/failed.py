"""Failed and unfinished runs, runs that missed the target or whose launcher failed, and files that are not records, with reasons. Pure."""

from launch.report.tables import BACKEND, RANKS, Column, filled

QUESTION = "What failed, and why?"
COLUMNS = (Column("run"), Column("status"), Column("reason"), Column("comparison"), BACKEND, RANKS)
STATUSES = {"diverged": "diverged", "failed": "failed", "timeout": "timed out", "started": "unfinished"}
UNFINISHED = "still running, or killed before its record was complete"


def answer(comparisons, damaged):
    """(sentences, tables) of the comparisons and of files that are not records (collect.Damaged)."""
    runs = [(comparison, entry, record) for comparison in comparisons for entry in comparison.entries for record in entry.records]
    rows = [
        (record.settings.run_id, *reason, comparison.name, entry.backend, entry.num_ranks)
        for comparison, entry, record in runs if (reason := failure(record))
    ]  # fmt: skip
    rows += [(file.path.name, "not a record", file.reason, None, None, None) for file in damaged]
    if not rows:
        return [f"Nothing: all {len(runs)} runs completed."], []
    statuses = [row[1] for row in rows]
    counts = [f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses)]
    return [f"Of {len(runs) + len(damaged)} files: {', '.join(counts)}."], filled("Unsuccessful runs", COLUMNS, rows)


def failure(record):
    """(status, reason) of a run that failed, is unfinished, has no time to solution or whose launcher failed; None for any other."""
    resumed = f"resumed from a checkpoint after {record.resumed_after_epochs} epochs"
    if record.status != "ok":
        return STATUSES[record.status], record.error or UNFINISHED
    if record.reached is False and record.accuracy is None:
        return "target not reached", f"{resumed}, with no epoch left to train"
    if record.reached is False:
        return (
            "target not reached",
            f"accuracy {record.accuracy:.4f} after {len(record.accuracies)} epochs; the target is {record.target:g}",
        )
    if record.reached and record.time_to_solution_seconds is None:
        return "no time to solution", resumed
    if record.launcher_error:
        return "completed; its launcher failed", record.launcher_error
    return None
