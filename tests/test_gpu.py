"""tests/gpu.sh: really run on the CPU, in a small part; and what it does on a GPU, with made-up records of one."""

import gzip
import json
import time
from types import SimpleNamespace

import numpy as np
import pytest

from tests.gpu import agreement, breakdown, memory, profile, speed
from tests.gpu.running import Session
from tests.support.forked import run_module
from tests.support.made_records import made, step_breakdown, tensor_bytes, typed
from tests.support.running import BIN, ROOT, completed

MIB = 2**20
LACKS = {"single": None, "ddp": None, "horovod_torch": "No module named 'horovod'"}


@pytest.fixture
def session(tmp_path):
    """A session on a GPU."""
    return Session(tmp_path, "cuda", 60.0, time.monotonic() + 60, LACKS, "a machine")


def use(monkeypatch, part, record):
    """Makes a part find this record of each run that it starts."""
    monkeypatch.setattr(part, "train", lambda *_, **__: record)


def record_of(**values):
    """The Record of a made run with these values."""
    return typed([made(**values)])[0]


@pytest.mark.matrix
@pytest.mark.long
def test_it_runs_without_a_gpu_and_says_what_it_skips(tmp_path):
    options = ("--device", "cpu", "--minutes", "2.2", "--parts", "agreement,memory", "--backends", "ddp")
    done = completed(ROOT / "tests" / "gpu.sh", tmp_path / "found", *options, variables={"PYTHON": BIN / "python"}, seconds=200)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "found" / "summary.json").read_text())
    checks = {check["what"]: check for check in summary["checks"]}
    assert checks["cnn: single on the CPU"]["numbers"] == {"steps": 40}
    assert checks["cnn: ddp, 1 rank, against the CPU"]["numbers"]["largest difference"] <= 1e-10
    assert (checks["peaks in the record"]["status"], checks["peaks in the record"]["reason"]) == ("skipped", "it needs a GPU")
    text = (tmp_path / "found" / "summary.txt").read_text()
    assert text in done.stdout
    assert all(check in text for check in checks)
    assert summary["seconds"] < 60 * 2.2


def test_a_python_without_the_packages_is_told_in_one_line(tmp_path):
    bare = tmp_path / "python"
    # Without the folder of installed packages.
    bare.write_text(f'#!/bin/sh\nexec {BIN / "python"} -S "$@"\n')
    bare.chmod(0o755)
    done = completed(ROOT / "tests" / "gpu.sh", tmp_path / "found", variables={"PYTHON": bare})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: {bare} lacks torch numpy psutil pytest pluggy iniconfig packaging pygments tyro ")
    assert done.stderr.endswith("name another Python with PYTHON, or with TANDEM_WHEELS a folder with their wheels\n")
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cuda"], "finds no GPU"),
        (["--parts", "speed,nonsense"], "there is no part 'nonsense'"),
        (["--backends", "nonsense"], "there is no backend 'nonsense'"),
        (["--minutes", "0"], "--minutes is 0"),
    ],
)
def test_a_mistake_is_told_before_anything_is_written(options, message, tmp_path):
    folder = tmp_path / "found"
    status, _, error = run_module("tests.gpu", folder, *options, CUDA_VISIBLE_DEVICES="")
    assert (status, folder.exists()) == (2, False)
    assert message in error.splitlines()[-1]


PART = """
import pytest

SHARE = 0.5


def test_that_fails():
    assert 1 == 2, "they differ"


@pytest.mark.gpu
def test_for_a_gpu():
    pass


@pytest.fixture
def missing():
    pytest.skip("no such thing")


def test_without_what_it_needs(missing):
    pass


def test_that_breaks():
    raise ValueError("broken")


@pytest.mark.parametrize("number", [])
def test_of_nothing(number):
    pass


@pytest.mark.parametrize("number", [5], ids=["five: it's measured"])
def test_that_measures(number, session, measured):
    measured["samples/s"] = 1234.5678
    assert session.limit(100.0) < 31
"""
RUN_PART = """
import sys, time
from pathlib import Path
import pytest
from tests.gpu.__main__ import OPTIONS
from tests.gpu.plugin import Plugin
from tests.gpu.running import Session

folder = Path(sys.argv[1])
session = Session(folder, "cpu", 60.0, time.monotonic() + 60, {}, "a machine")
sys.exit(pytest.main([*map(str, OPTIONS), str(folder / "a_part.py")], [Plugin(session, time.monotonic())]))
"""


def test_a_check_that_fails_stops_no_other_and_all_are_in_the_summary(tmp_path):
    (tmp_path / "a_part.py").write_text(PART)
    done = completed(BIN / "python", "-c", RUN_PART, tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [(check["part"], check["what"], check["status"], check["reason"]) for check in summary["checks"]] == [
        ("a_part", "that fails", "failed", "they differ"), ("a_part", "for a gpu", "skipped", "it needs a GPU"),
        ("a_part", "without what it needs", "skipped", "no such thing"), ("a_part", "that breaks", "failed", "ValueError: broken"),
        ("a_part", "five: it's measured", "ok", ""),
    ]  # fmt: skip
    assert (summary["about"], summary["checks"][-1]["numbers"]) == ("a machine", {"samples/s": 1234.5678})
    text = (tmp_path / "summary.txt").read_text()
    assert "1 ok, 2 skipped, 2 failed; " in text.splitlines()[-1]
    assert "samples/s 1235" in text
    assert text in done.stdout


def test_a_part_has_its_share_of_the_time_and_no_run_starts_without_time(session):
    assert session.part(0.5).limit(100.0) == pytest.approx(30.0, abs=0.5)
    assert session.limit(20.0) == 20.0
    with pytest.raises(pytest.skip.Exception, match="no time left"):
        session.part(0.1).limit(20.0)


def status_of(check, *arguments):
    """The status of a check with these arguments."""
    try:
        check(*arguments)
    except pytest.skip.Exception:
        return "skipped"
    except AssertionError:
        return "failed"
    return "ok"


@pytest.mark.parametrize(
    ("backend", "losses", "status"),
    [
        ("ddp", [2.0, 1.0 + 0.5e-10], "ok"),
        ("ddp", [2.0, 1.0 + 2e-10], "failed"),
        ("ddp", [2.0], "failed"),
        ("horovod_torch", [], "skipped"),
    ],
)
def test_losses_are_held_to_a_bound(backend, losses, status, session):
    run, measured = agreement.Run("cnn", backend, 1), {}
    by_run = {run: np.array(losses), agreement.Run("cnn"): np.array([2.0, 1.0])}
    assert status_of(agreement.test_agreement, run, session, by_run.get, measured) == status
    assert (measured.get("largest difference", 1) < 1e-10) == (status == "ok")


def test_runs_of_the_agreement_are_made_once_and_a_refusal_is_that_of_each_check(session, monkeypatch):
    calls = []

    def train(session, backend, name, *_, **__):
        calls.append(name)
        session.expect(backend)
        return record_of(losses=[1.0])

    monkeypatch.setattr(agreement, "train", train)
    losses = agreement.losses_of.__wrapped__(session)
    losses_of = next(losses)
    refused = agreement.Run("cnn", "horovod_torch", 1)
    assert [status_of(losses_of, refused) for _ in range(2)] == ["skipped"] * 2
    assert [losses_of(agreement.Run("cnn", "ddp", 2)).tolist() for _ in range(2)] == [[1.0]] * 2
    next(losses, None)
    assert len(calls) == len(set(calls)) == len(agreement.compared(session)) + len(agreement.REFERENCES)


@pytest.mark.parametrize(("sizes", "status"), [((100, 128, 900), "ok"), ((0, 0, 900), "failed"), ((1, 128, 900), "failed")])
def test_the_peaks_of_a_gpu_are_checked(sizes, status, session, monkeypatch):
    counted = dict(zip(("peak_allocated_bytes", "peak_reserved_bytes", "used_bytes"), ([size * MIB] for size in sizes), strict=True))
    use(monkeypatch, memory, record_of(gpu_memory_by_rank=counted, tensor_bytes_by_rank=tensor_bytes((8 * MIB, 8 * MIB, 16 * MIB))))
    assert status_of(memory.test_peaks_in_the_record, session, {}) == status


@pytest.mark.parametrize(
    ("error", "status"),
    [("out of GPU memory, 9 bytes (0.00 GiB) more were asked for; …", "ok"), ("RuntimeError: it broke", "failed"), (None, "skipped")],
)
def test_exhausted_memory_is_checked(error, status, session, monkeypatch):
    def end(*_, **__):
        assert error is None, error

    monkeypatch.setattr(memory, "train", end)
    assert status_of(memory.test_a_batch_that_is_too_large_is_told_in_one_line, session, {}) == status


@pytest.mark.parametrize(("trained", "status"), [(0.01, "ok"), (0.001, "failed")])
def test_a_step_that_was_only_queued_is_seen(trained, status, session, monkeypatch):
    record = record_of(step_breakdown=step_breakdown(), step_seconds=[trained] * 8, train_seconds=[4 * trained] * 2)
    use(monkeypatch, breakdown, record)
    assert status_of(breakdown.test_parts_of_a_step, "ddp", session, {}) == status


@pytest.mark.parametrize(("returns", "status"), [(0.1, "ok"), (4.9, "failed")])
def test_a_copy_that_waits_is_seen(returns, status, session, monkeypatch):
    monkeypatch.setattr(breakdown, "run", lambda *_: (0, json.dumps({"pinned returns (ms)": returns, "pinned done (ms)": 5.0})))
    assert status_of(breakdown.test_copies_to_the_GPU_from_pinned_memory, session, {}) == status


def test_kernels_streams_and_calls_of_nccl_are_counted(session, monkeypatch):
    events = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "tid": 7, "dur": 2000},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "tid": 9, "dur": 1000},
        {"ph": "X", "cat": "user_annotation", "name": "nccl:all_reduce", "tid": 1, "dur": 5}, {"ph": "M", "name": "thread_name"},
    ]  # fmt: skip
    folder = profile.trace_folder(session, "profile")
    folder.mkdir(parents=True)
    with gzip.open(folder / "torch.0.json.gz", "wt") as text:
        json.dump({"traceEvents": events}, text)
    use(monkeypatch, profile, None)
    numbers = {}
    profile.test_kernels_streams_and_calls_of_NCCL_in_a_profiled_epoch(session, numbers)
    assert [numbers[name] for name in ("events", "kernels", "streams", "NCCL kernels", "NCCL calls")] == [3, 2, 2, 1, 1]
    assert numbers["longest"][0] == "gemm 2 ms"


@pytest.mark.parametrize(("counted", "status"), [({"ncclAllReduce": 9}, "ok"), ({"ncclBroadcast": 1}, "failed"), ({}, "failed")])
def test_the_interposer_sees_the_calls_that_the_profiler_sees(counted, status, session, monkeypatch, tmp_path):
    profiles = {name: SimpleNamespace(sums=SimpleNamespace(num_calls=num_calls)) for name, num_calls in counted.items()}
    use(monkeypatch, profile, None)
    for name, value in (
        ("run", lambda *_: (0, "")), ("shutil", SimpleNamespace(which=lambda _: "mpicc")),
        ("mpi_profile", SimpleNamespace(read=lambda _: SimpleNamespace(nccl=profiles))),
        ("events", lambda _: [{"cat": "user_annotation", "name": "nccl:all_reduce_barrier"}]),
    ):  # fmt: skip
        monkeypatch.setattr(profile, name, value)
    folder = profile.trace_folder(session, "profile-intercepted")
    folder.mkdir(parents=True)
    (folder / "mpi_profile.0.json").touch()
    assert status_of(profile.test_calls_of_NCCL_by_the_interposer_and_by_the_profiler, session, {}, tmp_path) == status


def test_energy_and_clocks_are_those_of_nvml(session, monkeypatch):
    noise = {"gpu_clock_hz": [1.98e9, 1.9e9], "gpu_throttle_reasons": []}
    use(monkeypatch, profile, SimpleNamespace(machine_noise=SimpleNamespace(**noise), energy_joules=50.0, energy_source="NVML"))
    numbers = {}
    profile.test_energy_by_NVML_clocks_and_throttle_reasons(session, numbers)
    assert numbers == {
        "energy (J)": 50.0, "source": "NVML", "clock before and after (MHz)": [1980, 1900], "throttle reasons": "none",
    }  # fmt: skip


def test_speed_is_ours_over_the_vendors(session, monkeypatch):
    memory_of_rank = {key: [2**31] for key in ("peak_allocated_bytes", "peak_reserved_bytes", "used_bytes")}
    record = record_of(samples_per_epoch=100, train_seconds=[9.0, 2.0], gpu_memory_by_rank=memory_of_rank)
    use(monkeypatch, speed, record)
    numbers = {}
    speed.test_samples_per_second(
        speed.Run("single", "transformer-base", "fp32"), session, {"transformer-base": {"fp32": 100.0}}.get, numbers
    )
    assert numbers == {"samples/s": 50.0, "peak allocated (GiB)": 2.0, "vendor's samples/s": 100.0, "ratio": 0.5}


def test_every_run_has_a_name_of_its_own(session):
    for runs in (agreement.compared(session), speed.runs(session)):
        assert len({str(run) for run in runs}) == len(runs) > 0
