"""A run as an event log, one `:::MLLOG` line per event, in the format of the mlperf-logging package.

Keys and format: github.com/mlcommons/logging, mlperf_logging/mllog. A record has durations and one point in time, the start of its
process group, with a resolution of one second; the events follow from there.
"""

import calendar
import itertools
import json
import re
import time

from common import records
from common.errors import UserError
from launch.report.export import files

START, END, POINT = "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"


def write_all(answer, folder):
    """Writes RUN.log into a folder for each completed run of the answer. Raises UserError where it cannot be written."""
    logged = {}
    for run in (run for one in answer.comparisons for entry in one.entries for run in entry.ok):
        # A run_id must not lead out of the folder.
        name = re.sub(r"[^\w.@-]", "_", run["settings"]["run_id"])
        if name in logged:
            raise UserError(f"--mllog would write two runs to {name}.log; name one of their folders at a time")
        logged[name] = "".join(f"{line}\n" for line in lines(run))
    records.make_folder(folder, "event logs", "--mllog")
    for name, text in logged.items():
        files.write(folder / f"{name}.log", text)


def lines(run):
    """The lines of one record of status ok, in chronological order."""
    return [_line(*event) for event in _events(run)]


def _line(time_ms, kind, key, value, metadata):
    found = {"namespace": "", "time_ms": time_ms, "event_type": kind, "key": key, "value": value, "metadata": metadata}
    return f":::MLLOG {json.dumps(found)}"


def _events(run):
    begun = 1000 * calendar.timegm(time.strptime(run["started_at"], "%Y-%m-%dT%H:%M:%SZ"))
    clock = begun + _ms(run["init_seconds"])
    events = [(begun, POINT, key, value, {}) for key, value in _facts(run).items() if value is not None]
    events += [(begun, START, "init_start", None, {}), (clock, END, "init_stop", None, {}), (clock, START, "run_start", None, {})]
    elapsed = run["load_seconds"] or 0.0
    # The record of a resumed run has no numbers of the epochs before the checkpoint.
    first = 1 + (run.get("resumed_after_epochs") or 0)
    evaluations = zip(run["eval_seconds"], run["accuracies"], strict=False)
    for number, (seconds, evaluation) in enumerate(itertools.zip_longest(run["train_seconds"], evaluations), first):
        # After an epoch of unknown duration all times are unknown.
        if seconds is None or (evaluation and None in evaluation):
            break
        epoch = {"epoch_num": number}
        events += [
            (clock + _ms(elapsed), START, "epoch_start", None, epoch),
            (clock + _ms(elapsed + seconds), END, "epoch_stop", None, epoch),
        ]
        elapsed += seconds
        if evaluation:
            evaluated, accuracy = elapsed + evaluation[0], evaluation[1]
            events += [
                (clock + _ms(elapsed), START, "eval_start", None, epoch),
                (clock + _ms(evaluated), POINT, "eval_accuracy", accuracy, epoch),
                (clock + _ms(evaluated), END, "eval_stop", None, epoch),
            ]
            elapsed = evaluated
            # Training after the target was reached is not timed.
            if run["reached"] and accuracy >= run["target"]:
                break
    stopped = run["time_to_solution_seconds"]
    status = "success" if run["reached"] else "aborted"
    return [*events, (clock + _ms(elapsed if stopped is None else stopped), END, "run_stop", None, {"status": status})]


def _ms(seconds):
    return round(1000 * seconds)


def _facts(run):
    """{key: value} of the events without duration; unknown values are None."""
    settings = run["settings"]
    global_batch = settings["batch_size"] * (run["num_ranks"] if run["scaling"] == "weak" else 1)
    samples = None
    if run["samples_per_epoch"] is not None:
        samples = run["samples_per_epoch"] + (run["samples_dropped_per_epoch"] or 0)
    return {
        "submission_org": "tandem",
        "submission_platform": settings["machine"],
        "submission_division": "open",
        "submission_status": "research",
        "submission_benchmark": run["workload"],
        "config_filename": f"{settings['run_id']}.json",
        "seed": run["seed"],
        "global_batch_size": global_batch,
        "micro_batch_size": global_batch // run["num_ranks"],
        "gradient_accumulation_steps": 1,
        "train_samples": samples,
        "opt_name": settings["optimizer"],
        "opt_base_learning_rate": settings["learning_rate"] * settings["learning_rate_factor"],
        "opt_learning_rate_warmup_epochs": settings["warmup_epochs"],
        "lowest_numerical_precision_in_linear": settings["precision"],
        "lowest_numerical_precision_in_attn": settings["precision"] if run["workload"] != "cnn" else None,
        "lowest_numerical_precision_in_comm": settings["precision"],
        "tensor_parallelism": 1,
        "pipeline_parallelism": 1,
        "context_parallelism": 1,
        "expert_parallelism": 1,
    }
