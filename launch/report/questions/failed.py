"""Failed and unfinished runs, runs that missed the target, and files that are not records, with the reasons. Pure."""

from launch.report.tables import BACKEND, RANKS, Column, filled

QUESTION = "What failed, and why?"
COLUMNS = (Column("run"), Column("status"), Column("reason"), Column("comparison"), BACKEND, RANKS)
STATUSES = {"failed": "failed", "timeout": "timed out", "started": "unfinished"}
UNFINISHED = "still running, or killed before its record was complete"


def answer(compared, damaged):
    """(sentences, tables) of the comparisons and of files that are not records (collect.Damaged)."""
    runs = [(one, entry, run) for one in compared for entry in one.entries for run in entry.runs]
    rows = [
        (run["settings"]["run_id"], *found, one.name, entry.backend, entry.num_ranks)
        for one, entry, run in runs if (found := failure(run))
    ]  # fmt: skip
    rows += [(file.path.name, "not a record", file.reason, None, None, None) for file in damaged]
    if not rows:
        return [f"Nothing: all {len(runs)} runs completed."], []
    statuses = [row[1] for row in rows]
    counts = [f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses)]
    return [f"Of {len(runs) + len(damaged)} files: {', '.join(counts)}."], filled("Unsuccessful runs", COLUMNS, rows)


def failure(run):
    """(status, reason) of a run that failed, is unfinished or has no time to solution; None for any other."""
    resumed = f"resumed from a checkpoint after {run['resumed_after_epochs']} epochs"
    if run["status"] != "ok":
        return STATUSES[run["status"]], run["error"] or UNFINISHED
    if run["reached"] is False and run["accuracy"] is None:
        return "target not reached", f"{resumed}, with no epoch left to train"
    if run["reached"] is False:
        return (
            "target not reached",
            f"accuracy {run['accuracy']:.4f} after {len(run['accuracies'])} epochs; the target is {run['target']:g}",
        )
    if run["reached"] and run["time_to_solution_seconds"] is None:
        return "no time to solution", resumed
    return None
