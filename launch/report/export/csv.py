"""All measurements as CSV: one line per run, without averaging."""

import csv
import io

from launch.report import volumes

# Values per step, epoch or rank are in one cell, separated by spaces.
COLUMNS = (
    "run_id", "machine", "workload", "scaling", "backend", "num_ranks", "transport", "num_nodes", "oversubscribed", "repeat", "seed",
    "status", "error", "started_at", "workload_digest", "target", "reached", "time_to_solution_seconds", "accuracy", "samples_per_second",
    "tokens_per_second", "training_flops_per_sample", "flops_per_second_per_rank", "peak_flops_per_second", "share_of_peak", "in_sync",
    "launch_seconds", "import_seconds", "init_seconds", "load_seconds", "samples_per_epoch", "samples_dropped_per_epoch",
    "samples_padded_per_epoch", "resumed_after_epochs", "energy_joules", "energy_source", "peak_memory_bytes", "peak_memory_bytes_by_rank",
    "train_seconds", "eval_seconds", "accuracies", "eval_losses", "losses", "step_seconds", "learning_rates", "parameter_digests",
)  # fmt: skip


def text(answer):
    """One line per run of the answer, by comparison, backend, size and repeat; unknown values are empty."""
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    runs = [run for one in answer.comparisons for entry in one.entries for run in entry.runs]
    found = [run | _step_breakdown(run) | _volumes(run) | {name: run["settings"][name] for name in ("run_id", "machine")} for run in runs]
    # Keys that only some records have come last.
    more = sorted(
        {key for run in found for key in run if key.endswith(("_joules", "_seconds", "_bytes", "_second")) and key not in COLUMNS}
    )
    lines.writerow([*COLUMNS, *more])
    lines.writerows([_cell(run.get(name)) for name in (*COLUMNS, *more)] for run in found)
    return written.getvalue()


def _step_breakdown(run):
    """The step breakdown of a run as keys of the run."""
    return {f"step_breakdown_{key}": value for key, value in (run.get("step_breakdown") or {}).items() if not isinstance(value, dict)}


def _volumes(run):
    """What a rank of a run holds and sends in a step, as counted and as theory expects it."""
    return {
        "state_bytes": volumes.state_bytes(run),
        "expected_state_bytes": volumes.expected_state_bytes(run),
        "sent_per_step_bytes": volumes.sent_bytes(run),
        "expected_sent_per_step_bytes": volumes.expected_sent_bytes(run),
    }


def _cell(value):
    if isinstance(value, list):
        return " ".join("-" if item is None else str(item) for item in value)
    return "" if value is None else value
