"""Records are comparable only with the same training, the same settings and one machine."""

import pytest

from common.errors import UserError
from launch.report import comparable
from tests.support.made_records import ended, made, typed


def check(records):
    comparable.check(typed(records))


def test_runs_that_trained_different_things_are_refused_with_the_setting():
    differing = made(backend="single", workload_digest="e" * 64, settings={"batch_size": 64})
    with pytest.raises(UserError) as raised:
        check([made(), differing])
    assert "20260101-000000-cnn-single-n1-r0 and 20260101-000000-cnn-ddp-n1-r0 trained different things" in str(raised.value)
    assert "(--batch-size 64 and 16)" in str(raised.value)


def test_runs_on_different_data_are_refused():
    with pytest.raises(UserError, match="their data or rate factors differ"):
        check([made(), made(workload_digest="e" * 64)])


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"threads": 2}, "--threads 2 and 1"),
        ({"bind": False}, "--bind False and True"),
        ({"stop_at_target": False}, "--stop-at-target"),
        ({"compile": True}, "--compile True and False"),
        ({"autotune": True}, "--autotune True and False"),
        ({"evaluation_batch_size": 7}, "--evaluation-batch-size 7 and"),
    ],
)
def test_runs_whose_time_depends_on_other_settings_are_refused_with_the_setting(settings, named):
    with pytest.raises(UserError, match="have different settings") as raised:
        check([made(), made(num_ranks=2, settings=settings)])
    assert named in str(raised.value)


def test_a_run_that_computes_its_activations_again_is_not_compared_with_one_that_keeps_them():
    with pytest.raises(UserError, match="--recompute True and False"):
        check([made(workload="transformer"), made(workload="transformer", settings={"recompute": True})])


@pytest.mark.parametrize(
    "changes",
    [
        {"repeat": 3}, {"num_ranks": 4},
        {"settings": {"watchdog_timeout": 5.0}}, {"settings": {"learning_rate_factor": 4.0, "data_dir": "/data", "mllog": True}},
        {"stamp": "20270101-000000"}, {"backend": "deepspeed_zero@3", "settings": {"zero_stage": 3}},
        {"scaling": "strong", "workload_digest": "e" * 64, "settings": {"batch_size": 64}},
        {"workload": "transformer", "workload_digest": "e" * 64},
    ],
)  # fmt: skip
def test_what_a_matrix_varies_may_differ(changes):
    check([made(), made(**changes)])


def test_a_failed_run_without_a_digest_is_accepted():
    check([made(), ended("failed", num_ranks=2, settings={"batch_size": 64})])


def test_repeats_on_different_numbers_of_nodes_are_refused():
    with pytest.raises(UserError, match=r"ddp-n4-r1 and .*ddp-n4-r0 ran on different numbers of nodes \(4 and 1\)"):
        check([made(num_ranks=4), made(num_ranks=4, repeat=1, num_nodes=4)])


@pytest.mark.parametrize(
    "changes", [{"num_ranks": 8}, {"backend": "horovod_tf"}, {"status": "failed", "error": "it broke", "num_nodes": None}]
)
def test_other_sizes_and_failed_runs_may_use_other_numbers_of_nodes(changes):
    check([made(num_ranks=4), made(**{"num_ranks": 4, "repeat": 1, "num_nodes": 2} | changes)])


def on(device, asked_for="auto", **changes):
    """A record of a run on a device; None: not known."""
    record = made(settings={"device": asked_for}, **changes)
    return record | {"environment": record["environment"] | {"device": device}}


@pytest.mark.parametrize(
    ("first", "second"), [(("cuda",), ("cpu",)), (("cuda", "cuda"), ("cpu", "cpu")), (("cuda",), (None, "cpu")), ((None, "cuda"), ("cpu",))]
)
def test_runs_on_different_devices_are_refused(first, second):
    with pytest.raises(UserError, match=r"^\S+-ddp-n2-r0 and \S+-ddp-n1-r0 ran on different devices \((cpu and cuda|cuda and cpu)\); "):
        check([on(*first), on(None), on(*second, num_ranks=2)])


@pytest.mark.parametrize(
    ("first", "second"),
    [(("cpu",), ("cpu", "cpu")), (("cpu",), (None,)), (("cuda",), (None,)), ((None,), (None, "cpu")), (("cuda",), ("cuda",))],
)
def test_the_device_that_was_asked_for_may_differ_and_a_record_may_not_tell(first, second):
    check([on(*first), on(*second, num_ranks=2)])


def test_a_run_that_failed_before_its_device_was_known_is_accepted():
    failed = ended("failed", num_ranks=2, settings={"device": "cuda"})
    check([on("cpu"), failed])


def test_records_of_two_machines_are_refused():
    there = made(backend="single")
    there["settings"]["machine"] = "there"
    with pytest.raises(UserError, match=r"several machines \(here, there\)"):
        check([made(), there])


def test_repeats_over_different_transports_are_refused():
    with pytest.raises(UserError, match=r"ran over different transports \(gloo and nccl\); compare them separately"):
        check([made(transport="nccl"), made(repeat=1, transport="gloo")])
    check([made(transport="gloo"), made(repeat=1, transport=None), made(num_ranks=2, transport="nccl")])
