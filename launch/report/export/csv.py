"""All that was measured as CSV: one line a run, nothing left out or averaged."""

import csv
import io

# Values that are one for each step, epoch or rank stand in one cell, divided by a space.
COLUMNS = (
    "run_id", "machine", "workload", "scaling", "backend", "ranks", "nodes", "oversubscribed", "repeat", "seed", "status", "error",
    "started_at", "workload_digest", "target", "reached", "time_to_solution_seconds", "accuracy", "samples_per_second", "in_sync",
    "launch_seconds", "import_seconds", "init_seconds", "load_seconds", "samples_per_epoch", "samples_dropped_per_epoch",
    "samples_padded_per_epoch", "resumed_after_epochs", "energy_joules", "energy_source", "peak_memory_bytes", "peak_memory_bytes_by_rank",
    "train_seconds", "eval_seconds", "accuracies", "eval_losses", "losses", "step_seconds",
    "learning_rates", "parameter_digests",
)  # fmt: skip


def text(answer):
    """One line for each run of the answer, by comparison, backend, size and repeat; what is not known is empty."""
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    runs = [run for one in answer.comparisons for entry in one.entries for run in entry.runs]
    found = [run | _account(run) | {name: run["settings"][name] for name in ("run_id", "machine")} for run in runs]
    # What only some records have follows the columns that all have.
    more = sorted(
        {key for run in found for key in run if key.endswith(("_joules", "_seconds", "_bytes", "_second")) and key not in COLUMNS}
    )
    lines.writerow([*COLUMNS, *more])
    lines.writerows([_cell(run.get(name)) for name in (*COLUMNS, *more)] for run in found)
    return written.getvalue()


def _account(run):
    """The account of a run as more keys of its own; a value for each rank stands in one cell."""
    return {f"account_{key}": value for key, value in (run.get("account") or {}).items() if not isinstance(value, dict)}


def _cell(value):
    if isinstance(value, list):
        return " ".join("-" if item is None else str(item) for item in value)
    return "" if value is None else value
