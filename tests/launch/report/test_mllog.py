"""A run's event log as the mlperf-logging package reads it; only the documented compliance checks fail."""

import re
from pathlib import Path

import pytest
from mlperf_logging.compliance_checker import mlp_compliance
from mlperf_logging.compliance_checker.mlp_parser import ruleset_610

from common.errors import UserError
from launch.report import collect, summary
from launch.report.export import mllog
from tests.support.made_records import ended, made, not_reached
from tests.support.running import ROOT

RULES = Path(mlp_compliance.__file__).parent / "training_6.1.0"
# Required by the rules of MLPerf Training and not applicable to a run of Tandem; reasons in launch/report/README.md.
NOT_APPLICABLE = {"cache_clear", "eval_samples", "submission_benchmark"}


def parsed(run):
    return ruleset_610.parse_generator(mllog.lines(run))


def failing(run):
    """The keys, of rules for all benchmarks, that the package finds wrong or missing in a run's log."""
    checker = mlp_compliance.make_checker("training", "6.1.0", quiet=True, werror=False)
    loglines, errors = parsed(run)
    assert errors == []
    failed = set()
    for rules in ("common.yaml", "open_common.yaml"):
        checker.configured_checks(loglines, RULES / rules)
        failed |= set(checker.overwritable)
    # The rules ask for those of the benchmark next, and there are none for ours.
    mlp_compliance.enqueued_configs.clear()
    assert checker.not_overwritable == []
    return failed


def test_a_log_has_the_events_of_a_run_in_the_order_of_their_times():
    loglines, errors = parsed(made())
    assert errors == []
    assert [line.key for line in loglines if line.key.endswith(("_start", "_stop"))] == [
        "init_start", "init_stop", "run_start", *["epoch_start", "epoch_stop", "eval_start", "eval_stop"] * 2, "run_stop",
    ]  # fmt: skip
    times = [line.timestamp for line in loglines]
    assert times == sorted(times)
    at = {line.key: line.timestamp for line in loglines}
    assert at["init_stop"] - at["init_start"] == 2000
    assert at["run_stop"] - at["run_start"] == 10000
    assert [line.value["value"] for line in loglines if line.key == "eval_accuracy"] == [0.49, 0.98]


def test_a_log_has_the_training_settings():
    at = {line.key: line.value["value"] for line in parsed(made(num_ranks=2, repeat=4))[0]}
    expected = {
        "seed": 5,
        "global_batch_size": 32,
        "micro_batch_size": 16,
        "train_samples": 65,
        "opt_name": "sgd",
        "submission_benchmark": "cnn",
    }
    assert at.items() >= expected.items()
    assert at["opt_base_learning_rate"] == 0.008


@pytest.mark.parametrize(("run", "status"), [(made(), "success"), (not_reached(), "aborted")])
def test_the_status_is_whether_the_target_was_reached(run, status):
    assert parsed(run)[0][-1].value["metadata"] == {"status": status}


def test_training_after_the_target_is_left_out():
    run = made(accuracies=[0.97, 0.98], seconds=5.0, train_seconds=[4.0, 4.0])
    loglines, _ = parsed(run)
    assert [line.value["value"] for line in loglines if line.key == "eval_accuracy"] == [0.97]
    at = {line.key: line.timestamp for line in loglines}
    assert at["run_stop"] - at["run_start"] == 5000


@pytest.mark.parametrize(
    ("key", "values", "accuracies"),
    [
        ("train_seconds", [4.0, None], [0.49]),
        ("eval_seconds", [None, 0.5], []),
        ("accuracies", [0.49, None], [0.49]),
        ("accuracies", [], []),
    ],
)
def test_unknown_values_are_left_out(key, values, accuracies):
    loglines, errors = parsed(made(**{key: values}))
    assert errors == []
    assert [line.value["value"] for line in loglines if line.key == "eval_accuracy"] == accuracies
    assert loglines[-1].key == "run_stop"


def test_a_resumed_run_counts_its_epochs_from_the_checkpoint():
    run = made(resumed_after_epochs=3, time_to_solution_seconds=None)
    assert {line.value["metadata"]["epoch_num"] for line in parsed(run)[0] if line.key == "eval_accuracy"} == {4, 5}


@pytest.mark.parametrize(
    ("run", "more"), [(made(workload="transformer", num_ranks=2), set()), (made(num_ranks=2), {"lowest_numerical_precision_in_attn"})]
)
def test_only_checks_that_do_not_apply_fail(run, more):
    assert failing(run) == NOT_APPLICABLE | more


def test_every_entry_of_the_committed_records_has_a_valid_log():
    found, _ = collect.collect([ROOT / "results" / "reference"])
    # Repeats differ in their numbers alone, and a check of a log takes 40 ms.
    for run in (run for run in found if run["repeat"] == 0):
        assert failing(run) <= NOT_APPLICABLE | {"lowest_numerical_precision_in_attn"}


def test_only_completed_runs_have_a_log(tmp_path):
    mllog.write_all(summary.answer([made(), ended("failed", num_ranks=2)]), tmp_path / "logs")
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["20260101-000000-cnn-ddp-n1-r0.log"]


def test_two_runs_with_one_name_are_refused(tmp_path):
    runs = [made(), made(started_at="2026-01-02T00:00:00Z")]
    with pytest.raises(UserError, match=r"two runs to 20260101-000000-cnn-ddp-n1-r0\.log"):
        mllog.write_all(summary.answer(runs), tmp_path / "logs")
    assert list(tmp_path.iterdir()) == []


def test_a_run_id_cannot_lead_out_of_the_folder(tmp_path):
    run = made()
    run["settings"]["run_id"] = "../../else"
    mllog.write_all(summary.answer([run]), tmp_path / "logs")
    assert [path.name for path in (tmp_path / "logs").iterdir()] == [".._.._else.log"]


def test_the_documentation_names_the_checks_that_do_not_apply():
    text = (ROOT / "launch" / "report" / "README.md").read_text()
    documented = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert set(documented) == NOT_APPLICABLE | {"lowest_numerical_precision_in_attn"}
