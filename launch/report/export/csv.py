"""All measurements as CSV: one line per run, without averaging."""

import csv
import io
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from common.record.definition import Record
from launch.report import volumes
from launch.report.summary import Answer

# Values per step, epoch or rank are in one cell, separated by spaces.
COLUMNS = (
    "run_id", "machine", "workload", "scaling", "backend", "num_ranks", "transport", "num_nodes", "oversubscribed", "repeat", "seed",
    "status", "error", "started_at", "workload_digest", "target", "reached", "time_to_solution_seconds", "accuracy", "samples_per_second",
    "tokens_per_second", "training_flops_per_sample", "flops_per_second_per_rank", "peak_flops_per_second", "share_of_peak", "in_sync",
    "launch_seconds", "import_seconds", "init_seconds", "load_seconds", "samples_per_epoch", "samples_dropped_per_epoch",
    "resumed_after_epochs", "energy_joules", "peak_memory_bytes", "peak_memory_bytes_by_rank",
    "train_seconds", "eval_seconds", "accuracies", "eval_losses", "losses", "step_seconds", "learning_rates", "parameter_digests",
    "sample_digests", "buffer_digests",
)  # fmt: skip
# A formula of a spreadsheet begins with one of these.
FORMULA = ("=", "+", "-", "@", "\t", "\n")
# Parts of a step breakdown that no cell can hold.
IN_PARTS = ("operations", "exchange_start_seconds", "library")
# Endings of the names of times, speeds and energies.
OF_SPEED = ("_seconds", "_second", "_second_per_rank", "_joules", "share_of_peak")


def text(answer: Answer) -> str:
    """Returns one line per run of the answer, by comparison, backend, size and repeat; unknown values are empty."""
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    rows = [_values(record) if record.status != "diverged" else _without_speed(_values(record)) for record in answer.runs]
    # Values that only some records have come last.
    further = sorted({name for row in rows for name in row if name.endswith(("_joules", "_seconds", "_bytes", "_second"))} - {*COLUMNS})
    lines.writerow([*COLUMNS, *further])
    lines.writerows([_cell(row.get(name)) for name in (*COLUMNS, *further)] for row in rows)
    return written.getvalue()


def _values(record: Record) -> dict[str, Any]:
    """Returns the values, by column, of a record and its step breakdown, with what a rank holds and sends in a step."""
    breakdown = vars(record.step_breakdown) if record.step_breakdown else {}
    step_values = {f"step_breakdown_{key}": value for key, value in breakdown.items() if key not in IN_PARTS}
    return {field.name: getattr(record, field.name) for field in fields(record)} | step_values | {
        "run_id": record.settings.run_id,
        "machine": record.settings.machine,
        "state_bytes": volumes.state_bytes(record),
        "expected_state_bytes": volumes.expected_state_bytes(record),
        "sent_per_step_bytes": volumes.sent_bytes(record),
        "expected_sent_per_step_bytes": volumes.expected_sent_bytes(record),
    }  # fmt: skip


def _without_speed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a run that diverged, whose speed is that of no training."""
    return {name: value for name, value in values.items() if not name.endswith(OF_SPEED)}


def _cell(value: Any) -> Any:
    """Returns the content of a cell. A text that a spreadsheet would take for a formula begins with a quote (OWASP, CSV injection)."""
    values = value if isinstance(value, list) else [value]
    if not isinstance(next(iter(values), None), str):
        return " ".join("-" if item is None else str(item) for item in values) if isinstance(value, list) else value
    # Python does not quote a carriage return, which ends a line for its own reader.
    text = " ".join(map(str, values)).replace("\r", "\n")
    return f"'{text}" if text.startswith(FORMULA) else text
