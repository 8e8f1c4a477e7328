"""The event log of a run as the mlperf-logging package reads it; only the documented compliance checks fail."""

import re
from pathlib import Path

import pytest
from mlperf_logging.compliance_checker import mlp_compliance
from mlperf_logging.compliance_checker.mlp_parser import ruleset_610

from common.config import Settings
from common.training import event_log
from tests.support.made_records import made, typed
from tests.support.running import ROOT, train

RULES = Path(mlp_compliance.__file__).parent / "training_6.1.0"
# Required by the rules of MLPerf Training and not applicable to a run of Tandem; reasons in common/README.md.
NOT_APPLICABLE = {"cache_clear", "submission_benchmark"}
WITHOUT_ATTENTION = {"lowest_numerical_precision_in_attn"}


def parsed(path):
    loglines, errors = ruleset_610.parse_generator(path.read_text().splitlines())
    assert errors == []
    return loglines


def failing(path):
    """The keys, of rules for all benchmarks, that the package finds wrong or missing in a log."""
    checker = mlp_compliance.make_checker("training", "6.1.0", quiet=True, werror=False)
    loglines, failed = parsed(path), set()
    for rules in ("common.yaml", "open_common.yaml"):
        checker.configured_checks(loglines, RULES / rules)
        failed |= set(checker.overwritable)
    # The rules ask for those of the benchmark next, and there are none for ours.
    mlp_compliance.enqueued_configs.clear()
    assert checker.not_overwritable == []
    return failed


@pytest.mark.matrix
def test_a_run_logs_its_events_as_they_happen(tmp_path):
    arguments = ("--workload", "transformer", "--epochs", 2, "--target", 1, "--accumulate", 2, "--mllog")
    status, record, _ = train("horovod_torch", 2, tmp_path, *arguments)
    (path,) = (tmp_path / "here").glob(f"*{event_log.ENDING}")
    assert (status, path.stem, failing(path)) == (0, record["settings"]["run_id"], NOT_APPLICABLE)
    loglines = parsed(path)
    assert [line.key for line in loglines if line.key.endswith(("_start", "_stop"))] == [
        "init_start", "init_stop", "run_start", *["epoch_start", "epoch_stop", "eval_start", "eval_stop"] * 2, "run_stop",
    ]  # fmt: skip
    at = {line.key: line for line in loglines}
    assert [line.value["value"] for line in loglines if line.key == "eval_accuracy"] == record["accuracies"]
    assert at["run_stop"].value["metadata"]["status"] == "aborted"
    values = {key: line.value["value"] for key, line in at.items()}
    assert values["train_samples"] == record["samples_per_epoch"] + record["samples_dropped_per_epoch"]
    assert values["micro_batch_size"] == record["settings"]["batch_size"]
    assert values["global_batch_size"] == values["micro_batch_size"] * 2 * 2
    assert values["gradient_accumulation_steps"] == 2
    assert values["opt_base_learning_rate"] == record["settings"]["learning_rate"] * 2
    # Milliseconds, and none of them stopped for anything.
    times = [line.timestamp for line in loglines]
    assert times == sorted(times)
    initialized = (at["init_stop"].timestamp - at["init_start"].timestamp) / 1000
    assert initialized >= record["import_seconds"] + record["init_seconds"] - 0.01
    last_epoch = (at["epoch_stop"].timestamp - at["epoch_start"].timestamp) / 1000
    assert last_epoch == pytest.approx(record["train_seconds"][-1], abs=0.02)


@pytest.mark.parametrize(
    ("backend", "degree", "batches", "pipeline"), [("ddp", 4, (64, 16), 1), ("pipeline_ddp", 2, (32, 16), 2), ("pipeline", 1, (16, 16), 4)]
)
def test_the_ranks_of_a_pipeline_share_a_batch_and_the_cnn_has_no_attention(backend, degree, batches, pipeline, tmp_path):
    record = made(workload="cnn", backend=backend, num_ranks=4, data_parallel_degree=degree, scaling="weak")
    record["settings"] |= {"batch_size": 16, "learning_rate": 0.1, "learning_rate_factor": 1.0}
    event_log.log_settings(event_log.begin(tmp_path / "log"), *typed([record]), 0.0)
    values = {line.key: line.value["value"] for line in parsed(tmp_path / "log")}
    assert (values["global_batch_size"], values["micro_batch_size"], values["pipeline_parallelism"]) == (*batches, pipeline)
    assert WITHOUT_ATTENTION.isdisjoint(values)


def test_a_run_without_it_writes_none():
    assert event_log.path_for(Path("run.json"), Settings()) is None
    assert event_log.path_for(Path("run.json"), Settings(mllog=True)) == Path("run.mllog")


def test_the_documentation_names_the_checks_that_do_not_apply():
    section = (ROOT / "common" / "README.md").read_text().partition("## Event logs")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == NOT_APPLICABLE | WITHOUT_ATTENTION
