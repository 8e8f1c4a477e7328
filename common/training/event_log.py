"""The event log of a run, one `:::MLLOG` line for each event as it happens, in the format of MLPerf's package mlperf-logging."""

import logging
import time

from mlperf_logging.mllog.mllog import MLLogger

from common import workloads
from common.backends import declaration_of

ENDING = ".mllog"
# MLPerf's names, where they are others; and the types of the gradients that ranks exchange, where they are those of no product.
NAMES = {"bf16": "bfloat16"}
EXCHANGED = {"bf16": "fp32", "tf32": "fp32"}


def begin(path):
    """An MLLogger that writes into a file, each event at once; `path` None: one that writes nothing."""
    # Not a logger of the process: libraries configure those.
    logger = logging.Logger("events", logging.INFO)
    logger.addHandler(logging.FileHandler(path, "w", encoding="utf-8") if path else logging.NullHandler())
    return MLLogger(logger)


def path_for(record_path, settings):
    """The path of the event log beside a record; None without --mllog, or without a record."""
    return record_path.with_name(record_path.name.removesuffix(".json") + ENDING) if settings.mllog and record_path else None


def log_settings(log, record, seconds_ago):
    """Logs the start of initialization, so many seconds ago, and what is known of the run then."""
    log.start("init_start", time_ms=round(1000 * (time.time() - seconds_ago)))
    for key, value in _facts(record).items():
        if value is not None:
            log.event(key, value)


def stop(log, status):
    """Logs the end of the run, `success` or `aborted`, after which nothing is logged."""
    log.end("run_stop", metadata={"status": status})
    log.logger.disabled = True


def _facts(record):
    """{key: value} of a record; None where there is no such thing. Keys: mlperf_logging/mllog/constants.py."""
    settings, degree = record.settings, record.data_parallel_degree
    global_batch = workloads.global_batch(settings, degree)
    backend, num_sharing = declaration_of(record.backend), record.num_ranks // degree
    precision, reduction = settings.precision, settings.reduction
    exchanged = reduction if reduction in ("fp16", "bf16") else EXCHANGED.get(precision, precision)
    if precision == "bf16" and num_sharing > 1:
        # Activations.
        exchanged = precision
    return {
        "submission_org": "tandem",
        "submission_platform": settings.machine,
        "submission_division": "open",
        "submission_status": "research",
        "submission_benchmark": record.workload,
        "config_filename": f"{settings.run_id}.json" if settings.run_id else None,
        "seed": record.seed,
        "global_batch_size": global_batch,
        "micro_batch_size": global_batch // settings.accumulate // degree,
        "gradient_accumulation_steps": settings.accumulate,
        "opt_name": settings.optimizer,
        "opt_base_learning_rate": settings.learning_rate * settings.learning_rate_factor,
        "opt_learning_rate_warmup_epochs": settings.warmup_epochs,
        "lowest_numerical_precision_in_linear": NAMES.get(precision, precision),
        "lowest_numerical_precision_in_attn": NAMES.get(precision, precision) if record.workload != "cnn" else None,
        "lowest_numerical_precision_in_comm": NAMES.get(exchanged, exchanged),
        "tensor_parallelism": num_sharing if backend.divides else 1,
        "pipeline_parallelism": num_sharing if backend.pipelined else 1,
        "context_parallelism": 1,
        "expert_parallelism": 1,
    }
