"""A model of the user's own is verified: each backend against one process."""

import pytest

from common.config import Settings
from launch.matrix import prepare
from launch.run import verify
from launch.run.experiments import Examination
from tests.support.made_records import made, typed
from tests.support.mistakes import refused
from tests.support.user_models import BATCH_NORM, BEGINNING, PERCEPTRON, written

LOSSES = [3.0, 2.0, 1.0, 0.5]
CLOSE, APART = ([loss * (1 + difference) for loss in LOSSES] for difference in (1e-12, 1e-7))
LATE = [3.0, 2.0, 1.0 + 1e-3, 0.5]
DIGESTS = ["a" * 64, "b" * 64, "c" * 64]


@pytest.fixture(autouse=True)
def findings(monkeypatch):
    """What experiments find, by function: nothing, but where a test says otherwise."""
    findings = {"in_one_process": Examination({}, [], None, [], 0.01)}
    monkeypatch.setattr(verify.experiments, "in_one_process", lambda _: findings["in_one_process"])
    monkeypatch.setattr(verify.experiments, "between_processes", lambda *_: findings.get("between_processes"))
    return findings


def verified(losses=CLOSE, by_rank=None, **changes):
    fields = {"backend": "ddp", "num_ranks": 2, "parameter_digests": DIGESTS, "scaling": "strong"} | changes
    references = [made(backend="single", losses=LOSSES, parameter_digests=DIGESTS, sample_digests=["8" * 64])]
    if by_rank:
        references.append(made(backend="single", losses=by_rank, settings={"accumulate": 2, "batch_size": 8}))
    (run,) = verify.verified(typed([*references, made(losses=losses, **fields)]))
    return run


def test_losses_that_differ_by_rounding_agree_and_float32_masters_have_a_bound_of_their_own():
    assert (verified().verdict, verified().first_step) == ("agrees", None)
    assert verified(APART).first_step == 1
    assert (verified(APART, backend="deepspeed_zero").verdict, verified(APART, backend="deepspeed_zero").bound) == ("agrees", 1e-5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "differs from step 3 on"),
        ({"by_rank": CLOSE}, "differs from step 3 on"),
        ({"num_ranks": 1}, "differs from step 3 on"),
        ({"parameter_digests": ["f" * 64, *DIGESTS[1:]]}, "it begins with other parameters than one process"),
        ({"sample_digests": ["9" * 64]}, "it trained other samples in epoch 1, or in another order, than single"),
        ({"workload_digest": "9" * 64}, "it has other data or shapes than one process"),
    ],
)
def test_a_backend_that_differs_is_shown_with_its_first_step_and_no_cause_where_none_is_found(changes, reason):
    run = verified(LATE, **changes)
    assert (run.first_step, run.largest_difference) == (3, pytest.approx(1e-3))
    assert run.verdict == f"{reason}; no cause is found"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"accuracies": [0.7]}, "the evaluation after epoch 1 differs (accuracy 0.7, and 0.5 in one process); no cause is found"),
        ({"eval_losses": [0.25]}, "the evaluation after epoch 1 differs (loss 0.25, and 0.5 in one process); no cause is found"),
        ({"accuracies": [0.7], "buffers_in_sync": False}, "agrees"),
    ],
)
def test_evaluations_are_compared_where_ranks_have_the_same_buffers(changes, verdict):
    same = {"accuracies": [0.5], "eval_losses": [0.5], "buffers_in_sync": True, "losses": LOSSES, "parameter_digests": DIGESTS}
    (run,) = verify.verified(typed([made(backend="single", **same), made(num_ranks=2, **same | changes)]))
    assert run.verdict == verdict


def test_after_20_steps_rounding_that_grows_is_no_difference_and_a_jump_is_one():
    growing = [1 + 1e-13 * 2**step for step in range(30)]
    expected = [1.0] * 30
    parts = {"parameter_digests": DIGESTS, "num_ranks": 2}

    def first_step(losses):
        records = [made(backend="single", losses=expected, parameter_digests=DIGESTS), made(losses=losses, **parts)]
        (run,) = verify.verified(typed(records))
        return run.first_step

    assert first_step([*expected[:20], *growing[13:23]]) is None
    assert first_step([*expected[:24], *[1.01] * 6]) == 25


def test_statistics_by_rank_are_those_of_the_micro_batches_of_one_process():
    run = verified(LATE, by_rank=[loss * (1 + 1e-12) for loss in LATE])
    assert (run.verdict, run.problem) == ("as 2 micro-batches of one process; statistics are by rank", None)
    assert (run.first_step, run.largest_difference) == (3, pytest.approx(1e-3))
    assert run.difference_by_rank == pytest.approx(1e-12, rel=0.01)
    assert "On GPUs SyncBatchNorm has those of all ranks" in verify.answer([run])[1]
    assert verified(by_rank=LATE).verdict == "agrees"


def test_one_process_has_the_micro_batches_of_each_number_of_ranks_where_the_model_has_buffers(tmp_path):
    def references(name, text, **settings):
        run = verify.Matrix().run.__class__(model=str(written(tmp_path, BEGINNING + text, f"{name}.py")), **settings)
        jobs = prepare(verify.Matrix(sizes=(2, 4), backends="ddp", verify=True, run=run)).jobs
        # With one rank a backend would exchange nothing.
        assert {job.num_ranks for job in jobs if job.backend == "ddp"} == {2, 4}
        return [(job.settings.batch_size, job.settings.accumulate) for job in jobs if job.backend == "single"]

    assert references("normed", BATCH_NORM, batch_size=16) == [(16, 1), (8, 2), (4, 4)]
    assert references("normed", BATCH_NORM, accumulate=2) == [(None, 2), (16, 4), (8, 8)]
    assert references("plain", PERCEPTRON) == [(None, 1)]


def test_the_causes_of_failures_are_named(findings):
    error = "RuntimeError: Expected to have finished reduction in the prior iteration (…) by passing find_unused_parameters=True"
    failed = {"status": "failed", "in_sync": None, "error": error}
    assert verified(**failed).verdict.endswith("whose gradients the library waits for; give the file FIND_UNUSED = True")
    tail = ["  what():  [enforce fail at pair.cc:456] Received data size … Is there a distributed collective mismatch in your code?", "==="]
    killed = failed | {"error": "rank 1 was killed by SIGABRT", "output_tail": tail}
    assert verified(**killed).verdict.endswith("give the file FIND_UNUSED = True")
    unseeded = "rank 0: the ranks have different parameters before training: rank 1 (n) has not the same as rank 0 (n)"
    findings["between_processes"] = "the parameters of model() differ"
    assert verified(**failed | {"error": unseeded}).verdict == "wrong: the parameters of model() differ"
    missing = "rank 0: TypeError: Lars.__init__() missing 1 required positional argument: 'lr'"
    assert verified(**failed | {"error": missing}).cause.endswith("give its other arguments defaults")
    assert verified(**failed | {"error": "rank 1 was killed"}).verdict == "not seen: failed, rank 1 was killed; no cause is found"


def test_the_rows_are_in_order_of_ranks_and_backends_however_the_runs_ended(capsys):
    runs = [(4, "fsdp"), (2, "fsdp"), (4, "ddp"), (2, "ddp")]
    records = [made(backend, num_ranks, losses=CLOSE, parameter_digests=DIGESTS) for num_ranks, backend in runs]
    verify.show(typed([made(backend="single", losses=LOSSES, parameter_digests=DIGESTS), *records]))
    rows = [line.split("│")[2:4] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [(int(ranks), backend.strip()) for backend, ranks in rows] == sorted(runs)


def test_the_exit_status_is_1_where_a_backend_differs_or_nothing_is_compared(capsys):
    reference = made(backend="single", losses=LOSSES, parameter_digests=DIGESTS)
    for losses, status, answer in ((CLOSE, 0, "All 1 runs agree."), (LATE, 1, "1 of 1 runs differ.")):
        assert verify.show(typed([reference, made(num_ranks=2, losses=losses, parameter_digests=DIGESTS)])) == status
        printed = capsys.readouterr().out
        assert answer in printed
        assert ("differs from" in printed) is bool(status)
    assert verify.show(typed([reference])) == 1
    assert verify.show(typed([made(num_ranks=2)])) == 1


def test_the_cause_of_a_difference_is_that_of_processes_then_of_a_step_and_of_shards(findings):
    nothing = findings["in_one_process"]
    findings["in_one_process"] = nothing._replace(wrong={"training": "loss()", "data": "overlap"}, of_ranks=["state"], of_shards="norms")
    assert verified(LATE).verdict == "wrong: loss(); state; norms"
    assert verified(LATE, num_ranks=1).verdict == "wrong: norms"
    findings["between_processes"] = "the samples differ"
    assert verified(LATE).verdict == "wrong: the samples differ"


def test_what_is_wrong_in_the_file_is_said_though_all_runs_agree(findings, capsys):
    nothing = findings["in_one_process"]
    records = [made(backend="single", losses=LOSSES, parameter_digests=DIGESTS), made(num_ranks=2, losses=CLOSE, parameter_digests=DIGESTS)]
    for wrong, unused, status in (({"metric": "it is no sum"}, [], 1), ({}, ["forgotten.bias"], 0)):
        findings["in_one_process"] = nothing._replace(wrong=wrong, without_gradient=unused)
        assert verify.show(typed(records)) == status
        printed = capsys.readouterr().out
        assert ("Wrong in cnn: it is no sum." in printed, "no gradient comes to them: forgotten.bias" in printed) == (
            bool(wrong),
            bool(unused),
        )
        assert "All 1 runs agree." in printed


def test_an_epoch_is_20_steps_or_more_short_ones_and_whole_epochs_are_asked_for(findings, tmp_path):
    def steps(step_seconds, **options):
        findings["in_one_process"] = findings["in_one_process"]._replace(step_seconds=step_seconds)
        run = verify.Matrix().run.__class__(epochs=options.pop("epochs", None))
        prepared = prepare(verify.Matrix(workloads="cnn", verify=True, run=run, **options))
        return prepared.machine.variables.get("TANDEM_STEPS_PER_EPOCH"), prepared.jobs[0].settings.epochs

    assert [steps(seconds) for seconds in (1e-4, 0.1, 3)] == [("500", 1), ("50", 1), ("20", 1)]
    assert steps(1e-4, dry_run=True) == ("20", 1)
    assert steps(1e-4, epochs=3) == (None, 3)


def test_experiments_before_and_after_the_runs_are_the_same(findings, monkeypatch):
    asked = []
    monkeypatch.setattr(verify.experiments, "in_one_process", lambda settings: asked.append(settings) or findings["in_one_process"])
    verify.examined(Settings(workload="cnn", precision="fp64"))
    verify.examined(typed([made(backend="single")])[0].settings)
    assert asked[0] == asked[1]


def test_settings_of_its_own_and_a_process_alone_are_added():
    def matrix(**changes):
        return verify.Matrix(run=verify.Matrix().run.__class__(model="mine.py"), **changes)

    applied = verify.applied(matrix(sizes=(2,), backends="ddp"))
    assert (applied.sizes, applied.backends, applied.run.precision, applied.run.scaling) == ((1, 2), "single,ddp", "fp64", "strong")
    with refused("leave --repeats out"):
        verify.applied(matrix(repeats=6))
