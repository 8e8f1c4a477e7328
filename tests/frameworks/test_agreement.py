"""All backends have the same loss at every step, at any number of ranks, and injected faults are detected."""

import functools
import json
import subprocess

import numpy as np
import pytest

from common.backends import declared, file_of
from common.model import flops
from common.workloads import WORKLOADS
from launch import probe
from launch.report.questions import same
from tests.support import small_data
from tests.support.agreement_runs import (
    ACCUMULATED_FLOAT32,
    ACCUMULATED_SGD,
    ASYNCHRONOUS,
    CNN,
    DECODER,
    EVERY_STEP,
    FEW_SAMPLES,
    FIRST_STEPS,
    FLOAT32,
    FLOAT64,
    FULL_RANK,
    IN_RANK_ORDER,
    LEFT_OUT,
    LOCAL_FROM_THE_START,
    LOCAL_LATER,
    MICRO_BATCHES,
    MIXED,
    MIXED_SGD,
    MIXED_SUMMED,
    NEVER_LOCAL,
    NOT_FUSED,
    NOT_MIXED,
    ONE_STEP,
    PROCESSORS,
    RECOMPUTED,
    RECOMPUTED_STAGES,
    RESTORED,
    SAME_TRAINING,
    SMALL_LEARNING_RATE,
    STAGE_3,
    STAGES,
    TIED,
    TWICE_THE_BATCH,
    VARIED,
    WARMED_UP_FOR_LESS,
    WEAK,
    WITHOUT_GPUS,
    Run,
)
from tests.support.backends import DISTRIBUTED, EXACT, VARIANTS
from tests.support.contract import (
    FAULTS,
    REDUCED,
    ROWS,
    TIED_VARIANTS,
    accumulated_by,
    degree,
    faults_of,
    faulty,
    ranks_of_faults,
    runs_of,
    trained_by,
)
from tests.support.running import train, train_in_turn

pytestmark = pytest.mark.matrix
# Of the losses of the first two steps, relative: that of the report. Measured: frameworks/README.md, "Precision".
MIXED_BOUND = same.TOLERANCES["bf16"]


def each_of(backends, runs):
    """Parameters `backend`, `ranks` and `run` from {ranks: runs}, of what each backend trains."""
    return [
        pytest.param(backend, ranks, run, id=f"{backend}-{run.workload}-{run.optimizer}-{ranks}")
        for backend in backends
        for ranks, each in runs.items()
        if degree(backend, ranks)
        for run in trained_by(backend, each)
    ]


def named(name, run):
    """Parameters `name` and `run`, of a backend or a variant."""
    return pytest.param(name, run, id=f"{name}-{run.workload}-{run.optimizer}")


def pairs(runs):
    """Parameters `ranks` and `run` from {ranks: runs}."""
    return [pytest.param(ranks, run, id=f"{run.workload}-{run.optimizer}-{ranks}") for ranks, each in runs.items() for run in each]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """{whether short: {workload: the arguments that read its data}}"""
    folder = tmp_path_factory.mktemp("data")
    return {False: small_data.write(folder / "long"), True: small_data.write(folder / "short", FEW_SAMPLES)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data):
    """A function that returns {run: (record, final parameters)} of all runs of a backend at a number of ranks."""

    @functools.cache
    def once(backend, ranks):
        runs = runs_of(backend, ranks)
        found = train_in_turn(backend, ranks, tmp_path_factory.mktemp("runs"), [(run.fault, *run.arguments(data, backend)) for run in runs])
        return dict(zip(runs, found, strict=True))

    return once


def disagreement(record, reference):
    """The largest relative difference between the losses of two runs at the same step."""
    assert record["status"] == "ok", record["error"]
    losses, expected = np.array(record["losses"], float), np.array(reference["losses"], float)
    assert len(losses) == len(expected)
    return np.max(np.abs(losses - expected) / np.abs(expected))


def disagreement_in(steps, record, reference):
    """As `disagreement`, of a slice of the steps."""
    return disagreement(record | {"losses": record["losses"][steps]}, {"losses": reference["losses"][steps]})


def as_single(run):
    """The run of `single` that trains as this run of another backend should."""
    training = SAME_TRAINING if run.training[: len(SAME_TRAINING)] == SAME_TRAINING else run.training
    return run._replace(variant=None, fault="none", training=training)


@pytest.mark.parametrize(("backend", "ranks", "run"), each_of(EXACT, {1: [CNN], 2: FLOAT64, 4: [CNN]}))
def test_in_float64_every_step_has_the_loss_of_the_plain_run(trained, run, backend, ranks):
    reference, expected = trained("single", 1)[run]
    record, parameters = trained(backend, ranks)[run]
    assert disagreement(record, reference) < 1e-10
    assert len(record["losses"]) >= 40
    assert record["num_ranks"] == ranks
    assert record["in_sync"] is True
    assert record["workload_digest"] == reference["workload_digest"]
    assert record["accuracies"] == reference["accuracies"]
    for name, values in expected.items():
        np.testing.assert_allclose(parameters[name], values, rtol=1e-9, atol=1e-9 * np.abs(values).max(), err_msg=name)


@pytest.mark.parametrize("run", FLOAT64, ids=lambda run: f"{run.workload}-{run.optimizer}")
def test_a_server_with_one_worker_trains_as_the_plain_run(trained, run):
    reference, _ = trained("single", 1)[run]
    record, _ = trained("parameter_server", 2)[run]
    assert disagreement(record, reference) < 1e-10
    assert record["accuracies"] == reference["accuracies"]
    assert (record["data_parallel_degree"], record["in_sync"], record["staleness"]) == (1, True, [{"0": len(record["losses"])}])


def test_a_step_of_all_workers_from_the_same_parameters_is_one_with_the_average_gradient(trained):
    reference, expected = trained("single", 1)[ONE_STEP]
    record, parameters = trained("parameter_server", 3)[ONE_STEP]
    assert disagreement(record, reference) < 1e-10
    assert (record["staleness"], record["left_out"]) == ([{"0": 1, "1": 1}] * 6, [])
    for name, values in expected.items():
        np.testing.assert_allclose(parameters[name], values, rtol=1e-9, atol=1e-9 * np.abs(values).max(), err_msg=name)


def test_asynchronous_workers_converge_on_stale_parameters(trained):
    record, _ = trained("parameter_server", 3)[ASYNCHRONOUS]
    assert (record["status"], record["backend"], record["exact"], record["in_sync"]) == ("ok", "parameter_server", False, True)
    assert np.mean(record["losses"][-20:]) < np.mean(record["losses"][:20]) / 2
    num_steps = len(record["losses"]) // 3
    for counts in record["staleness"]:
        assert sum(counts.values()) == 2 * num_steps
        mean = sum(int(value) * number for value, number in counts.items()) / (2 * num_steps)
        # The last of two workers sees all updates of the other, and that one those before its own last.
        assert 1 / 2 <= mean <= 1


def test_a_worker_whose_training_fails_is_left_out_and_the_others_go_on(trained):
    record, _ = trained("parameter_server", 3)[LEFT_OUT]
    assert (record["status"], record["in_sync"], len(record["accuracies"])) == ("ok", True, 3), record["error"]
    assert record["left_out"] == ["rank 0, epoch 1, step 20: ArithmeticError: it does not add up"]
    num_steps = len(record["losses"]) // 3
    assert [sum(counts.values()) for counts in record["staleness"]] == [19 + num_steps, num_steps, num_steps]
    assert record["staleness"][1:] == [{"0": num_steps}] * 2
    assert np.isfinite(record["losses"]).all()
    assert np.mean(record["losses"][-20:]) < np.mean(record["losses"][:20])


def test_where_every_worker_has_failed_so_has_the_run(data, tmp_path):
    status, record, _ = train("parameter_server", 2, tmp_path, *CNN.arguments(data), fault="worker_fails_in_step_20")
    assert (status, record["status"]) == (1, "failed")
    assert "the training of every worker has failed; the first: rank 0, epoch 1, step 20: ArithmeticError" in record["error"]


def test_data_parallel_without_gpus_is_the_plain_run(trained):
    reference, expected = trained("single", 1)[CNN]
    record, parameters = trained("data_parallel", 1)[WITHOUT_GPUS]
    assert (record["status"], record["losses"]) == ("ok", reference["losses"]), record["error"]
    assert (record["backend"], record["exact"], record["environment"]["device"]) == ("data_parallel", True, "cpu")
    for name, values in expected.items():
        np.testing.assert_array_equal(parameters[name], values, err_msg=name)


def test_data_parallel_on_several_gpus_has_the_losses_of_the_plain_run(data, tmp_path):
    answer = probe.ask("data_parallel")
    assert answer.keys() == {"cpu", "cuda"}
    if answer["cuda"]:
        pytest.skip(answer["cuda"])
    (reference, _), (record, _) = (train(backend, 1, tmp_path, *CNN.arguments(data))[1:] for backend in ("single", "data_parallel"))
    assert disagreement(record, reference) < 1e-10


def test_data_parallel_is_refused_where_it_would_only_call_the_module(data, tmp_path):
    status, record, _ = train("data_parallel", 1, tmp_path, *CNN.arguments(data), "--device", "cpu")
    assert (status, record["status"]) == (2, "failed")
    assert record["error"] == "with 0 GPUs DataParallel would only call the module; use single, or a node with several GPUs"


@pytest.mark.parametrize(("name", "run"), [named(name, run) for name in VARIANTS for run in trained_by(file_of(name), VARIED)])
def test_in_float64_every_step_of_a_variant_has_the_loss_of_the_plain_run(trained, run, name):
    backend, _, variant = name.partition("@")
    reference, _ = trained("single", 1)[run]
    record, _ = trained(backend, 2)[run._replace(variant=variant)]
    own, _ = trained(backend, 2)[run]
    assert disagreement(record, reference) < 1e-10
    assert len(record["losses"]) >= 40
    assert (record["backend"], record["in_sync"], own["backend"]) == (name, True, backend)
    if "transport" in declared()[backend].variants:
        assert (record["transport"], own["transport"], reference["transport"]) == (variant, declared()[backend].transport, None)


@pytest.mark.parametrize("name", [*(name for name in EXACT if not declared()[name].untied and degree(name, 2)), *TIED_VARIANTS])
def test_in_float64_every_step_of_a_tied_model_has_the_loss_of_the_plain_run(trained, name):
    reference, expected = trained("single", 1)[TIED["adam"]]
    backend, _, variant = name.partition("@")
    record, parameters = trained(backend, 2)[TIED["adam"]._replace(variant=variant or None)]
    assert disagreement(record, reference) < 1e-10
    assert len(record["losses"]) >= 40
    assert record["accuracies"] == reference["accuracies"]
    assert "head.weight" not in parameters
    for key, values in expected.items():
        np.testing.assert_allclose(parameters[key], values, rtol=1e-9, atol=1e-9 * np.abs(values).max(), err_msg=key)


@pytest.mark.parametrize("stage", STAGES)
def test_in_float64_every_step_of_a_tied_model_under_zero_has_the_loss_of_the_plain_run_to_float32(trained, stage):
    reference, _ = trained("single", 1)[TIED["sgd"]]
    record, _ = trained("deepspeed_zero", 2)[TIED["sgd"]._replace(variant=stage)]
    assert disagreement(record, reference) < 1e-6
    assert len(record["losses"]) >= 40


@pytest.mark.parametrize(
    ("name", "run"),
    [named(name, run) for name in ("single", *EXACT) for run in accumulated_by(name)],
)
def test_in_float64_micro_batches_have_the_losses_of_one_batch_as_large_as_all_of_them(trained, run, name):
    reference, _ = trained("single", 1)[run._replace(training=SAME_TRAINING)]
    record, _ = trained(name, 1 if name == "single" else 2)[run]
    assert disagreement(record, reference) < 1e-10
    assert len(record["losses"]) >= 40
    assert (record["backend"], record["in_sync"]) == (name, True)
    assert record["learning_rates"] == reference["learning_rates"]
    assert record["accuracies"] == reference["accuracies"]


@pytest.mark.parametrize("name", ["single", *EXACT])
def test_activations_that_are_computed_again_change_no_loss(trained, name):
    reference, _ = trained("single", 1)[STAGE_3]
    record, _ = trained(name, 1 if name == "single" else 2)[RECOMPUTED]
    assert disagreement(record, reference) < 1e-10
    assert (record["settings"]["recompute"], record["workload_digest"]) == (True, reference["workload_digest"])


@pytest.mark.parametrize("stage", RECOMPUTED_STAGES)
def test_under_zero_activations_that_are_computed_again_change_no_loss(trained, stage):
    plain, recomputed = (trained("deepspeed_zero", 2)[run._replace(variant=stage)][0] for run in (STAGE_3, RECOMPUTED))
    assert disagreement(recomputed, plain) < 1e-10


@pytest.mark.parametrize("name", ["single", *EXACT])
def test_a_run_has_the_flops_of_its_samples_and_their_share_of_the_peak(trained, name):
    num_ranks = 1 if name == "single" else 2
    record, _ = trained(name, num_ranks)[DECODER]
    rate = flops.training(WORKLOADS["transformer"].model) * record["samples_per_second"] / num_ranks
    assert record["flops_per_second_per_rank"] == pytest.approx(rate)
    assert record["tokens_per_second"] == pytest.approx(64 * record["samples_per_second"])
    assert record["share_of_peak"] == pytest.approx(rate / record["peak_flops_per_second"])


# At its default learning rate the CNN is compared only with plain training that rounds to float32 as ZeRO does.
@pytest.mark.parametrize(("ranks", "run"), pairs({1: [SMALL_LEARNING_RATE], 2: FLOAT64[2:], 4: [SMALL_LEARNING_RATE]}))
@pytest.mark.parametrize("stage", STAGES)
def test_in_float64_every_step_under_zero_has_the_loss_of_the_plain_run_to_float32(trained, run, stage, ranks):
    reference, _ = trained("single", 1)[run]
    record, _ = trained("deepspeed_zero", ranks)[run._replace(variant=stage)]
    assert disagreement(record, reference) < 1e-6
    assert len(record["losses"]) >= 40
    assert record["workload_digest"] == reference["workload_digest"]
    assert record["backend"] == ("deepspeed_zero" if stage == 1 else f"deepspeed_zero@{stage}")
    assert record["library_configuration"]["zero_optimization"]["stage"] == stage
    assert record["library_configuration"]["train_batch_size"] == 8


@pytest.mark.parametrize("run", PROCESSORS, ids=lambda run: run.fault)
def test_stage_3_in_float64_trains_the_same_whatever_the_processor_computes_in(trained, run):
    reference, _ = trained("single", 1)[STAGE_3]
    record, _ = trained("deepspeed_zero", 2)[run]
    assert disagreement(record, reference) < 1e-6


@pytest.mark.parametrize("stage", [0, *STAGES])
def test_under_zero_micro_batches_have_the_losses_of_one_batch_as_large_as_all_of_them(trained, stage):
    # Stage 0 trains in float32 only, where it is compared with DDP's micro-batches.
    run = ACCUMULATED_SGD if stage else ACCUMULATED_FLOAT32
    reference, _ = trained("single", 1)[run._replace(training=SAME_TRAINING)] if stage else trained("ddp", 2)[run]
    record, _ = trained("deepspeed_zero", 2)[run._replace(variant=stage)]
    assert disagreement(record, reference) < 1e-6
    assert len(record["losses"]) >= 40
    assert record["library_configuration"]["gradient_accumulation_steps"] == 4


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("run", NOT_FUSED, ids=lambda run: f"{run.workload}-{run.optimizer}")
def test_zero_differs_only_by_rounding_to_float32(trained, run, stage):
    reference, _ = trained("ddp", 2)[run._replace(fault="float32_masters")]
    record, _ = trained("deepspeed_zero", 2)[run._replace(variant=stage)]
    assert disagreement(record, reference) < 1e-10


# At four ranks: the CNN's ten outputs are not divisible by four.
@pytest.mark.parametrize("run", RESTORED, ids=lambda run: f"{run.optimizer}-{run.variant}")
def test_zero_restores_an_unsharded_state(trained, run):
    record, _ = trained("deepspeed_zero", 4)[run]
    assert record["status"] == "ok", record["error"]


# Where nothing but the order of additions differs, the losses of float32 runs stay within 1e-6 over all steps. Two gradients have
# one order of addition, four have several. At the CNN's default learning rate training amplifies the difference:
# test_stage_0_differs_only_by_the_order_of_additions.
@pytest.mark.parametrize(("ranks", "run"), pairs({2: FLOAT32, 4: [SMALL_LEARNING_RATE._replace(precision="fp32")]}))
def test_in_float32_every_step_under_stage_0_has_the_loss_of_ddp(trained, run, ranks):
    reference, _ = trained("ddp", ranks)[run]
    record, _ = trained("deepspeed_zero", ranks)[run._replace(variant=0)]
    assert disagreement(record, reference) < 1e-6
    assert len(record["losses"]) >= 40


@pytest.mark.parametrize("run", IN_RANK_ORDER, ids=lambda run: run.optimizer)
def test_stage_0_differs_only_by_the_order_of_additions(trained, run):
    reference, _ = trained("ddp", 4)[run]
    record, _ = trained("deepspeed_zero", 4)[run._replace(variant=0)]
    assert disagreement(record, reference) < 1e-6


@pytest.mark.parametrize(
    ("backend", "run"),
    [
        *(named(backend, run) for backend in EXACT for run in trained_by(backend, FIRST_STEPS)),
        *(named(f"deepspeed_zero@{stage}", run) for stage in STAGES for run in FIRST_STEPS),
    ],
)
def test_in_float32_the_first_two_steps_have_the_loss_of_the_plain_run(trained, run, backend):
    reference, _ = trained("single", 1)[run]
    name, _, stage = backend.partition("@")
    record, _ = trained(name, 2)[run._replace(variant=int(stage) if stage else None)]
    assert record["status"] == "ok", record["error"]
    np.testing.assert_allclose(record["losses"][:2], reference["losses"][:2], rtol=1e-6)


@pytest.mark.parametrize(
    ("backend", "run"),
    [
        *(named(backend, run) for backend in ("single", *EXACT) for run in trained_by(backend, MIXED)),
        *(named(f"deepspeed_zero@{stage}", run) for stage in STAGES for run in MIXED),
    ],
)
def test_in_mixed_precision_the_first_two_steps_have_the_loss_of_the_plain_run_up_to_rounding(trained, run, backend):
    name, _, stage = backend.partition("@")
    record, parameters = trained(name, 1 if name == "single" else 2)[run._replace(variant=int(stage) if stage else None)]
    assert record["status"] == "ok", record["error"]
    (mixed, _), (full, _) = (trained("single", 1)[one] for one in (run, as_full(run)))
    first, second, expected = (np.array(one["losses"][:2]) for one in (record, mixed, full))
    np.testing.assert_allclose(first, second, rtol=MIXED_BOUND)
    np.testing.assert_allclose(first, expected, rtol=1e-2)
    # Without the products in bfloat16 it would be rounding of float32.
    assert np.max(np.abs(first / expected - 1)) > 1e-5
    assert {array.dtype.name for array in parameters.values()} == {"float32"}
    assert record["workload_digest"] == mixed["workload_digest"] != full["workload_digest"]


def as_full(run):
    """The run in float32 beside one in mixed precision."""
    return NOT_MIXED[MIXED.index(run)]


def test_in_mixed_precision_summed_gradients_show_in_the_second_step(trained):
    reference, _ = trained("single", 1)[MIXED_SGD]
    record, _ = trained("ddp", 2)[MIXED_SUMMED]
    assert disagreement_in(slice(0, 1), record, reference) < MIXED_BOUND
    assert disagreement_in(slice(0, 2), record, reference) > 2 * MIXED_BOUND


# With momentum an update is linear in the gradients, so the average of the ranks' updates is the update with the average gradient.
# Adam's is not.
@pytest.mark.parametrize(
    ("backend", "run", "low", "high"),
    [
        (backend, run, *bounds)
        for backend, runs in {"weight_averaging": EVERY_STEP, "post_local_sgd": LOCAL_FROM_THE_START}.items()
        for run, bounds in zip(runs, ((0, 1e-10), (1e-4, np.inf)), strict=False)
    ],
    ids=lambda value: getattr(value, "optimizer", None),
)
def test_parameters_averaged_after_every_step_are_those_of_averaged_gradients_under_sgd_only(trained, backend, run, low, high):
    reference, _ = trained("single", 1)[as_single(run)]
    record, _ = trained(backend, 2)[run]
    assert low <= disagreement(record, reference) < high
    assert (record["backend"], record["exact"], record["in_sync"]) == (f"{backend}@1", False, True)


def test_parameters_averaged_after_every_step_of_micro_batches_are_those_of_averaged_gradients(trained):
    run = EVERY_STEP[0]._replace(training=MICRO_BATCHES)
    reference, _ = trained("single", 1)[CNN]
    record, _ = trained("weight_averaging", 2)[run]
    assert disagreement(record, reference) < 1e-10


@pytest.mark.parametrize(("backend", "run"), [("weight_averaging", DECODER), ("post_local_sgd", LOCAL_FROM_THE_START[2])])
def test_local_sgd_is_approximate(trained, backend, run):
    reference, _ = trained("single", 1)[DECODER]
    record, _ = trained(backend, 2)[run]
    assert 1e-3 < disagreement_in(slice(0, 20), record, reference) < 0.2
    assert (record["backend"], record["in_sync"]) == (backend, True)


# The average after the first local step is of equal parameters: the second local step is the first whose loss differs.
def test_post_local_sgd_is_exact_until_it_is_local(trained):
    reference, _ = trained("single", 1)[DECODER]
    record, _ = trained("post_local_sgd", 2)[LOCAL_LATER]
    assert disagreement_in(slice(0, 22), record, reference) < 1e-10
    assert 1e-4 < disagreement_in(slice(22, 41), record, reference) < 0.2
    assert record["in_sync"] is True


def test_post_local_sgd_that_is_never_local_is_exact(trained):
    reference, _ = trained("single", 1)[NEVER_LOCAL]
    record, _ = trained("post_local_sgd", 2)[NEVER_LOCAL]
    assert disagreement(record, reference) < 1e-10
    assert (len(record["losses"]) < record["settings"]["local_after"], record["in_sync"]) == (True, True)


def first_steps(record):
    return record | {"losses": record["losses"][:20]}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", REDUCED)
def test_another_reduction_of_gradients_is_approximate(trained, name, ranks):
    backend, _, variant = name.partition("@")
    reference, _ = trained("single", 1)[DECODER]
    record, _ = trained(backend, ranks)[DECODER._replace(variant=variant)]
    low, high = REDUCED[name]
    assert low < disagreement(first_steps(record), first_steps(reference)) < high
    assert len(record["losses"]) >= 40
    assert (record["backend"], record["exact"], record["in_sync"]) == (name, False, True)


def test_powersgd_at_full_rank_is_the_average(trained):
    reference, _ = trained("single", 1)[DECODER]
    record, _ = trained("ddp", 2)[FULL_RANK]
    assert 0 < disagreement(record, reference) < 1e-6


def test_powersgd_keeps_nothing_of_its_warm_up(trained):
    record, _ = trained("ddp", 2)[DECODER._replace(variant="powersgd")]
    other, _ = trained("ddp", 2)[WARMED_UP_FOR_LESS]
    assert other["losses"] == record["losses"]


def test_weak_scaling_at_two_ranks_is_one_rank_with_twice_the_batch(trained):
    record, _ = trained("ddp", 2)[WEAK]
    reference, _ = trained("single", 1)[TWICE_THE_BATCH]
    assert record["learning_rates"] == reference["learning_rates"]
    assert disagreement(record, reference) < 1e-10


@pytest.mark.parametrize(
    ("name", "fault"),
    [(name, fault) for name in (*DISTRIBUTED, *(name for name in REDUCED if name.endswith("fp16"))) for fault in faults_of(file_of(name))],
)
def test_an_injected_fault_changes_the_losses(trained, name, fault):
    run, backend = faulty(name, fault), file_of(name)
    reference, _ = trained("single", 1)[as_single(run)]
    # Only one run can be the last of its processes.
    record, _ = trained(backend, 4 if fault == FAULTS[-1] and name != backend else ranks_of_faults(backend))[run]
    if fault == "no_all_reduce" and not ROWS[backend].in_sync_under_faults:
        assert (record["status"], record["in_sync"]) == ("failed", False)
        assert "differ after epoch 1" in record["error"]
        record = record | {"status": "ok"}
    assert not disagreement(record, reference) < 1e-4


def test_replicas_with_different_initial_parameters_are_detected_before_training(data, tmp_path):
    status, record, _ = train("ddp", 2, tmp_path, *Run("cnn", "sgd").arguments(data), fault="unlike_start")
    assert (status, record["status"], record["in_sync"], record["losses"]) == (1, "failed", False, [])
    assert "differ before training" in record["error"]


def test_a_failure_after_the_record_is_written_counts(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    for number in range(2):
        (tmp_path / "here" / f"run{number}.json").write_text(json.dumps({"status": "ok", "error": None}))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, "", "it broke"))
    records = [record for record, _ in train_in_turn("single", 1, tmp_path, [("none",)] * 3)]
    assert [record["status"] for record in records] == ["ok", "failed", "none"]
    assert records[1]["error"] == "it broke"
