"""What failed and why: runs without a good end, runs without their target, files that hold no record. Pure."""

from launch.report.tables import BACKEND, RANKS, Column, filled

QUESTION = "What failed, and why?"
COLUMNS = (Column("run"), Column("what"), Column("why"), Column("comparison"), BACKEND, RANKS)
ENDS = {"failed": "failed", "timeout": "ran out of time", "started": "not finished"}
STARTED = "it goes on, or was killed before its record was complete"


def answer(compared, damaged):
    """(sentences, tables) of the comparisons and of files that hold no record (collect.Damaged)."""
    runs = [(one, entry, run) for one in compared for entry in one.entries for run in entry.runs]
    rows = [
        (run["settings"]["run_id"], *found, one.name, entry.backend, entry.ranks)
        for one, entry, run in runs if (found := what_failed(run))
    ]  # fmt: skip
    rows += [(file.path.name, "no record", file.why, None, None, None) for file in damaged]
    if not rows:
        return [f"Nothing: all {len(runs)} runs came to a good end."], []
    kinds = [row[1] for row in rows]
    counts = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
    return [f"Of {len(runs) + len(damaged)} files: {'; '.join(counts)}."], filled("Runs without a good end", COLUMNS, rows)


def what_failed(run):
    """(what, why) of a run that has no good end; None for one that has."""
    if run["status"] != "ok":
        return ENDS[run["status"]], run["error"] or STARTED
    if run["reached"] is False and run["accuracy"] is None:
        return "target not reached", f"it went on from a snapshot after {run['resumed_after_epochs']} epochs and had nothing left to train"
    if run["reached"] is False:
        return (
            "target not reached",
            f"accuracy {run['accuracy']:.4f} after {len(run['accuracies'])} epochs; the target is {run['target']:g}",
        )
    if run["reached"] and run["time_to_solution_seconds"] is None:
        return "no time to solution", f"it went on from a snapshot after {run['resumed_after_epochs']} epochs"
    return None
