"""Records are comparable only with the same training, the same settings and one machine."""

import contextlib

import pytest

from common.errors import UserError
from launch.report import runs
from tests.support.made_records import ended, made, typed


def check(records):
    runs.check_comparable(typed(records))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"backend": "single", "workload_digest": "e" * 64, "settings": {"batch_size": 64}},
            r"cnn-single-n1-r1 and 20260101-000000-cnn-ddp-n1-r0 trained different things \(--batch-size 64 and 16\)",
        ),
        ({"workload_digest": "e" * 64}, "their data or rate factors differ"),
        (
            {"workload": "transformer", "workload_digest": "e" * 64, "settings": {"layers": 3}},
            r"trained different things \(--layers 3 and None\)",
        ),
        ({"settings": {"threads": 2}}, "different settings .*--threads 2 and 1"),
        ({"settings": {"bind": False}}, "different settings .*--bind False and True"),
        ({"settings": {"stop_at_target": False}}, "different settings .*--stop-at-target"),
        ({"num_ranks": 4, "num_nodes": 4}, r"ddp-n4-r1 and .*ddp-n4-r0 ran on different numbers of nodes \(4 and 1\)"),
        ({"transport": "gloo"}, r"ran over different transports \(gloo and nccl\); compare them separately"),
    ],
)
def test_runs_that_differ_in_more_than_a_matrix_varies_are_refused_with_the_difference(changes, message):
    first = made(transport="nccl", workload=changes.get("workload", "cnn"), num_ranks=changes.get("num_ranks", 1))
    with pytest.raises(UserError, match=message):
        check([first, made(**{"transport": "nccl", "repeat": 1} | changes)])


@pytest.mark.parametrize(
    "changes",
    [
        {"repeat": 3}, {"num_ranks": 4}, {"num_ranks": 4, "num_nodes": 4},
        {"backend": "horovod_tf", "num_ranks": 2, "num_nodes": 2, "transport": "mpi"},
        {"repeat": 1, "status": "failed", "error": "it broke", "num_nodes": None, "transport": None},
        {"settings": {"watchdog_timeout": 5.0}}, {"settings": {"data_dir": "/data"}},
        {"stamp": "20270101-000000"}, {"backend": "deepspeed_zero@3", "settings": {"zero_stage": 3}},
        {"scaling": "strong", "workload_digest": "e" * 64, "settings": {"batch_size": 64}},
        {"workload": "transformer", "workload_digest": "e" * 64},
    ],
)  # fmt: skip
def test_what_a_matrix_varies_may_differ(changes):
    check([made(transport="gloo"), made(**{"transport": "gloo"} | changes)])


def test_a_run_that_failed_before_its_digest_and_device_were_known_is_accepted():
    check([on("cpu"), ended("failed", num_ranks=2, settings={"batch_size": 64, "device": "cuda"})])


def on(device, asked_for="auto", **changes):
    """A record of a run on a device; None: not known."""
    record = made(settings={"device": asked_for}, **changes)
    return record | {"environment": record["environment"] | {"device": device}}


# (The device, and what was asked for.) A record may not tell.
@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [
        (("cuda",), ("cpu",), True), (("cuda", "cuda"), ("cpu", "cpu"), True), (("cuda",), (None, "cpu"), True),
        ((None, "cuda"), ("cpu",), True),
        (("cpu",), ("cpu", "cpu"), False), (("cpu",), (None,), False), (("cuda",), (None,), False), ((None,), (None, "cpu"), False),
    ],
)  # fmt: skip
def test_runs_on_different_devices_are_refused(first, second, is_refused):
    reason = r"^\S+-ddp-n2-r0 and \S+-ddp-n1-r0 ran on different devices \((cpu and cuda|cuda and cpu)\); "
    with pytest.raises(UserError, match=reason) if is_refused else contextlib.nullcontext():
        check([on(*first), on(None), on(*second, num_ranks=2)])


def test_runs_of_a_backend_with_different_configurations_of_its_library_are_refused_at_one_size_only():
    first, second = ({"library_configuration": {"zero_optimization": {"reduce_bucket_size": size}}} for size in (1, 2))
    check([made(**first), made(num_ranks=2, **second), made(backend="single", **second), made(repeat=1)])
    with pytest.raises(UserError, match=r"ran with different configurations of their library \(\{'zero_opt.* compare them separately"):
        check([made(**first), made(repeat=1, **second)])


def stored(data_format, num_workers=0, **changes):
    """A record of a run that read its data from disk."""
    return made(num_ranks=2, settings={"data_format": data_format, "num_workers": num_workers}, workload_digest="d" * 64, **changes)


def test_runs_that_read_in_different_ways_are_compared_apart():
    records = typed([made(num_ranks=2), stored("hdf5"), stored("hdf5", num_workers=2), stored("hdf5", repeat=1)])
    runs.check_comparable(records)
    assert [(comparison.name, sum(len(entry.records) for entry in comparison.entries)) for comparison in runs.comparisons(records)] == [
        ("cnn, weak scaling", 1), ("cnn, weak scaling, hdf5", 2), ("cnn, weak scaling, hdf5, 2 workers", 1),
    ]  # fmt: skip
