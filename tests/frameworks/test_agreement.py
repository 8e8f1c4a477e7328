"""All backends have the same loss at every step, at any number of ranks, and injected faults are detected."""

import json
import subprocess

import numpy as np
import pytest

from common import backends
from common.backends import file_of, is_exact
from common.config import Settings
from common.declarations import BASELINE, declared
from tests.support.agreement_runs import (
    ASYNCHRONOUS,
    CNN,
    NUM_ASYNCHRONOUS_EPOCHS,
    NUM_STEPS,
    ONE_STEP,
    RESTORED,
    SAME_TRAINING,
)
from tests.support.contract import COMPARISONS, INJECTED, ROWS, faulty, ranks_of_faults
from tests.support.running import train_in_turn

pytestmark = pytest.mark.matrix


def identify(name, comparison):
    """The id of a test: the backend, and what is particular of the run and the comparison."""
    run = comparison.run
    words = [name, run.workload, run.optimizer, run.precision, comparison.ranks, *([] if run.fault == "none" else [run.fault])]
    words += [word.strip("-") for word in run.training if word.startswith("--") and word not in SAME_TRAINING]
    return "-".join(map(str, [*words, *(["differs"] if comparison.above else [])]))


def marks(name, comparison):
    """Four processes of TensorFlow, which take long to start, are long. Beside two they show that a mean is over all ranks."""
    return pytest.mark.long if comparison.ranks == 4 and declared()[file_of(name)].framework != "PyTorch" else ()


def disagreement(record, reference, steps=slice(None)):
    """The largest relative difference between the losses of two runs at the same step."""
    assert record["status"] == "ok", record["error"]
    losses, expected = np.array(record["losses"], float), np.array(reference["losses"], float)
    assert len(losses) == len(expected)
    return np.max(np.abs(losses - expected)[steps] / np.abs(expected)[steps])


@pytest.mark.runs(needed=lambda name, comparison: [(name, comparison.ranks, comparison.run), comparison.reference])
@pytest.mark.parametrize(("name", "comparison"), [pytest.param(*pair, id=identify(*pair), marks=marks(*pair)) for pair in COMPARISONS])
def test_a_run_has_the_losses_of_its_reference(trained, name, comparison):
    run, reference_run = comparison.run, comparison.reference[-1]
    record, parameters = trained(name, comparison.ranks, run)
    reference, expected = trained(*comparison.reference)
    assert comparison.above <= disagreement(record, reference, comparison.steps) < comparison.below
    assert (record["backend"], record["num_ranks"], record["in_sync"]) == (name, comparison.ranks, True)
    assert record["exact"] is is_exact(name)
    assert len(record["losses"]) >= (NUM_STEPS if run.plain.training == SAME_TRAINING and not run.short else 3)
    # Parameters of float64 are given back as such, and mixed precision has them in float32.
    assert {array.dtype.name for array in parameters.values()} == {"float64" if run.precision == "fp64" else "float32"}
    if is_exact(name) and run.training == reference_run.training:
        assert (record["workload_digest"] == reference["workload_digest"]) is (run.precision == reference_run.precision)
    if declared()[file_of(name)].variants.get("transport"):
        assert record["transport"] == (name.partition("@")[2] if name.endswith(("@mpi", "@gloo")) else declared()[file_of(name)].transport)
    configuration = record["library_configuration"] or {}
    if "zero_optimization" in configuration:
        settings = record["settings"]
        assert (configuration["train_batch_size"], configuration["gradient_accumulation_steps"]) == (8, settings["accumulate"])
        assert configuration["zero_optimization"]["stage"] == settings["zero_stage"] == backends.settings_of(name, Settings()).zero_stage
    if comparison.above == 0 and comparison.steps == slice(None):
        assert record["learning_rates"] == reference["learning_rates"]
    if comparison.above == 0 and comparison.below <= 1e-10 and comparison.steps == slice(None):
        assert record["accuracies"] == reference["accuracies"]
        assert parameters.keys() == expected.keys()
        for key, values in expected.items():
            tolerance = 10 * comparison.below
            np.testing.assert_allclose(parameters[key], values, rtol=tolerance, atol=tolerance * np.abs(values).max(), err_msg=key)


def runs_with_a_fault(name, fault):
    """The run of a backend with a fault, and its reference: from the plain run even a right run of an approximate backend may differ."""
    name_of_run, run = faulty(name, fault)
    right = (BASELINE, 1, run.plain) if is_exact(name_of_run) else (name_of_run, ranks_of_faults(name), run._replace(fault="none"))
    return (name_of_run, ranks_of_faults(name), run), right


@pytest.mark.runs(needed=runs_with_a_fault)
@pytest.mark.parametrize(("name", "fault"), INJECTED)
def test_an_injected_fault_changes_the_losses(trained, name, fault):
    (record, _), (reference, _) = (trained(*run) for run in runs_with_a_fault(name, fault))
    if fault == "no_all_reduce" and not ROWS[file_of(name)].in_sync_under_faults:
        assert (record["status"], record["in_sync"]) == ("failed", False)
        assert "have different parameters after epoch 1" in record["error"]
        record = record | {"status": "ok"}
    assert not disagreement(record, reference) < 1e-4


# At four ranks: the CNN's ten outputs are not divisible by four.
@pytest.mark.runs(needed=lambda name, ranks: [(name, ranks, RESTORED)])
@pytest.mark.parametrize(("name", "ranks"), [("deepspeed_zero", 4), ("deepspeed_zero@3", 4), ("tf_mirrored", 2)])
def test_a_state_is_restored_as_it_was(trained, name, ranks):
    record, _ = trained(name, ranks, RESTORED)
    assert record["status"] == "ok", record["error"]


@pytest.mark.runs(needed=lambda ranks, run, counts: [("parameter_server", ranks, run)])
@pytest.mark.parametrize(("ranks", "run", "counts"), [(2, CNN, {"0": NUM_STEPS}), (3, ONE_STEP, {"0": 1, "1": 1})])
def test_a_server_counts_the_updates_since_a_worker_fetched_its_parameters(trained, ranks, run, counts):
    record, _ = trained("parameter_server", ranks, run)
    num_epochs = len(record["losses"]) if run == ONE_STEP else 1
    assert (record["data_parallel_degree"], record["staleness"]) == (ranks - 1, [counts] * num_epochs)


@pytest.mark.runs(needed=lambda: [("parameter_server", 3, ASYNCHRONOUS)])
def test_asynchronous_workers_converge_on_stale_parameters(trained):
    record, _ = trained("parameter_server", 3, ASYNCHRONOUS)
    assert (record["status"], record["backend"], record["exact"], record["in_sync"]) == ("ok", "parameter_server", False, True)
    assert np.mean(record["losses"][-20:]) < np.mean(record["losses"][:20]) / 2
    num_steps = len(record["losses"]) // NUM_ASYNCHRONOUS_EPOCHS
    for counts in record["staleness"]:
        assert sum(counts.values()) == 2 * num_steps
        mean = sum(int(value) * number for value, number in counts.items()) / (2 * num_steps)
        # The last of two workers sees all updates of the other, and that one those before its own last.
        assert 1 / 2 <= mean <= 1


UNLIKE = CNN._replace(fault="unlike_start")


@pytest.mark.runs(needed=lambda: [("ddp", 2, UNLIKE)])
def test_replicas_unlike_at_the_start_end_a_run(trained):
    record, _ = trained("ddp", 2, UNLIKE)
    assert (record["status"], record["in_sync"], record["losses"]) == ("failed", False, [])
    assert "have different parameters before training" in record["error"]


def test_a_failure_after_the_record_is_written_counts(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    for number in range(2):
        (tmp_path / "here" / f"run{number}.json").write_text(json.dumps({"status": "ok", "error": None}))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, "", "it broke"))
    records = [record for record, _ in train_in_turn(1, tmp_path, [("single", "none")] * 3)]
    assert [record["status"] for record in records] == ["ok", "failed", "none"]
    assert records[1]["error"] == "it broke"
