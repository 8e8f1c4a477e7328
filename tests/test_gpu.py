"""tests/gpu.sh: really run on the CPU, in a small part; and what it does on a GPU, with made-up records of one."""

import gzip
import json
import subprocess
import time
from types import SimpleNamespace

import pytest

from tests.gpu import agreement, breakdown, checking, memory, profile, speed
from tests.gpu.checking import Check, Skipped, Todo
from tests.gpu.running import Session
from tests.support.made_records import made, step_breakdown, tensor_bytes
from tests.support.running import BIN, ROOT, environ

MIB = 2**20
LACKS = {"single": None, "ddp": None, "horovod_torch": "No module named 'horovod'"}


@pytest.fixture
def session(tmp_path):
    """A session on a GPU."""
    return Session(tmp_path, tmp_path, "cuda", 60.0, time.monotonic() + 60, LACKS, "a machine")


def use(monkeypatch, part, record):
    """Makes a part find this record of each run that it starts."""
    monkeypatch.setattr(part, "train", lambda *_, **__: record)


@pytest.mark.matrix
@pytest.mark.long
def test_it_runs_without_a_gpu_and_says_what_it_skips(tmp_path):
    options = ("--device", "cpu", "--minutes", "2.2", "--parts", "agreement,memory", "--backends", "ddp")
    command = [ROOT / "tests" / "gpu.sh", tmp_path / "found", *options]
    done = subprocess.run(command, env=environ() | {"PYTHON": BIN / "python"}, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found" / "summary.json").read_text())
    checks = {check["what"]: check for check in found["checks"]}
    assert checks["cnn: single on the CPU"]["numbers"] == {"steps": 40}
    assert checks["cnn: ddp, 1 rank, against the CPU"]["numbers"]["largest difference"] <= 1e-10
    assert (checks["peaks in the record"]["status"], checks["peaks in the record"]["reason"]) == ("skipped", "it needs a GPU")
    text = (tmp_path / "found" / "summary.txt").read_text()
    assert text in done.stdout
    assert all(what in text for what in checks)
    assert found["seconds"] < 60 * 2.2


def test_a_python_without_the_packages_is_told_in_one_line(tmp_path):
    bare = tmp_path / "python"
    # Without the folder of installed packages.
    bare.write_text(f'#!/bin/sh\nexec {BIN / "python"} -S "$@"\n')
    bare.chmod(0o755)
    command = [ROOT / "tests" / "gpu.sh", tmp_path / "found"]
    done = subprocess.run(command, env=environ() | {"PYTHON": bare}, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: {bare} lacks torch numpy psutil tyro ")
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
    command = [BIN / "python", "-m", "tests.gpu", folder, *options]
    done = subprocess.run(command, cwd=ROOT, env=environ() | {"CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, check=False)
    assert (done.returncode, folder.exists()) == (2, False)
    assert message in done.stderr.splitlines()[-1]


def failing(problem):
    def find():
        raise problem

    return find


def test_a_check_that_fails_stops_no_other(session):
    todo = [
        Todo("first", failing(AssertionError("they differ"))), Todo("second", failing(Skipped("no such thing"))),
        Todo("third", failing(ValueError("broken"))), Todo("fourth", lambda: {"samples/s": 1234.5678}),
    ]  # fmt: skip
    part = SimpleNamespace(todo=lambda _: todo, num_at_once=lambda _: 2, SHARE=0.5)
    checks = list(checking.run_part("a part", part, session))
    assert [(check.status, check.reason) for check in checks] == [
        ("failed", "they differ"), ("skipped", "no such thing"), ("failed", "ValueError: broken"), ("ok", ""),
    ]  # fmt: skip
    text = checking.summary(checks, session.about, 5.0)
    assert text.endswith("1 ok, 1 skipped, 2 failed; 5 s\n")
    assert "samples/s 1235" in text


def test_what_several_checks_need_is_found_once(session):
    calls = []
    ask = checking.once(lambda: calls.append(1) or 5)
    assert [ask(), ask(), calls] == [5, 5, [1]]
    refuse = checking.once(failing(Skipped("no time left")))
    assert [checking.made("", Todo("", refuse)).status for _ in range(2)] == ["skipped", "skipped"]


def test_a_part_has_its_share_of_the_time_and_no_run_starts_without_time(session):
    assert session.part(0.5).limit(100.0) == pytest.approx(30.0, abs=0.5)
    assert session.limit(20.0) == 20.0
    with pytest.raises(Skipped, match="no time left"):
        session.part(0.1).limit(20.0)


def status_of(find):
    return checking.made("part", Todo("check", find)).status


def test_losses_are_held_to_a_bound(session, monkeypatch):
    use(monkeypatch, agreement, {"losses": [2.0, 1.0 + 2e-10]})
    compare = agreement.compared(session, "ddp", "run", lambda: agreement.np.array([2.0, 1.0 + 1.5e-10]), (), 1)
    assert compare["largest difference"] < 1e-10
    assert status_of(lambda: agreement.compared(session, "ddp", "run", lambda: agreement.np.array([2.0, 1.0]), (), 1)) == "failed"
    assert status_of(lambda: agreement.compared(session, "horovod_torch", "run", None, (), 1)) == "skipped"


@pytest.mark.parametrize(
    ("sizes", "status"),
    [
        ((100, 128, 900), "ok"),
        ((0, 0, 900), "failed"),
        ((1, 128, 900), "failed"),
    ],
)
def test_the_peaks_of_a_gpu_are_checked(sizes, status, session, monkeypatch):
    counted = dict(zip(("peak_allocated_bytes", "peak_reserved_bytes", "used_bytes"), ([size * MIB] for size in sizes), strict=True))
    use(monkeypatch, memory, made(gpu_memory_by_rank=counted, tensor_bytes_by_rank=tensor_bytes((8 * MIB, 8 * MIB, 16 * MIB))))
    assert status_of(lambda: memory.peaks(session)) == status


@pytest.mark.parametrize(
    ("error", "status"),
    [("out of GPU memory, 9 bytes (0.00 GiB) more were asked for; …", "ok"), ("RuntimeError: it broke", "failed"), (None, "skipped")],
)
def test_exhausted_memory_is_checked(error, status, session, monkeypatch):
    def end(*_, **__):
        assert error is None, error

    monkeypatch.setattr(memory, "train", end)
    assert status_of(lambda: memory.exhausted(session)) == status


@pytest.mark.parametrize(("trained", "status"), [(0.01, "ok"), (0.001, "failed")])
def test_a_step_that_was_only_queued_is_seen(trained, status, session, monkeypatch):
    record = made(step_breakdown=step_breakdown(), step_seconds=[trained] * 8, train_seconds=[4 * trained] * 2)
    use(monkeypatch, breakdown, record)
    assert status_of(lambda: breakdown.parts(session, "ddp")) == status


@pytest.mark.parametrize(("returns", "status"), [(0.1, "ok"), (4.9, "failed")])
def test_a_copy_that_waits_is_seen(returns, status, session, monkeypatch):
    monkeypatch.setattr(breakdown, "run", lambda *_: (0, json.dumps({"pinned returns (ms)": returns, "pinned done (ms)": 5.0})))
    assert status_of(lambda: breakdown.copies(session)) == status


def test_kernels_streams_and_calls_of_nccl_are_counted(session, monkeypatch):
    found = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "tid": 7, "dur": 2000},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "tid": 9, "dur": 1000},
        {"ph": "X", "cat": "user_annotation", "name": "nccl:all_reduce", "tid": 1, "dur": 5}, {"ph": "M", "name": "thread_name"},
    ]  # fmt: skip
    folder = profile.trace_folder(session, "profile")
    folder.mkdir(parents=True)
    with gzip.open(folder / "torch.0.json.gz", "wt") as text:
        json.dump({"traceEvents": found}, text)
    use(monkeypatch, profile, None)
    numbers = profile.profiled(session)
    assert [numbers[name] for name in ("events", "kernels", "streams", "NCCL kernels", "NCCL calls")] == [3, 2, 2, 1, 1]
    assert numbers["longest"][0] == "gemm 2 ms"


@pytest.mark.parametrize(("counted", "status"), [({"ncclAllReduce": 9}, "ok"), ({"ncclBroadcast": 1}, "failed"), ({}, "failed")])
def test_the_interposer_sees_the_calls_that_the_profiler_sees(counted, status, session, monkeypatch):
    found = {name: SimpleNamespace(sums=SimpleNamespace(num_calls=num_calls)) for name, num_calls in counted.items()}
    use(monkeypatch, profile, None)
    for name, value in (
        ("run", lambda *_: (0, "")), ("shutil", SimpleNamespace(which=lambda _: "mpicc")),
        ("mpi_profile", SimpleNamespace(read=lambda _: SimpleNamespace(nccl=found))),
        ("events", lambda _: [{"cat": "user_annotation", "name": "nccl:all_reduce_barrier"}]),
    ):  # fmt: skip
        monkeypatch.setattr(profile, name, value)
    folder = profile.trace_folder(session, "profile-intercepted")
    folder.mkdir(parents=True)
    (folder / "mpi_profile.0.json").touch()
    assert status_of(lambda: profile.intercepted(session)) == status


def test_energy_and_clocks_are_those_of_nvml(session, monkeypatch):
    noise = {"gpu_clock_hz": [1.98e9, 1.9e9], "gpu_throttle_reasons": []}
    use(monkeypatch, profile, {"machine_noise": noise, "energy_joules": 50.0, "energy_source": "NVML"})
    assert profile.energy(session) == {
        "energy (J)": 50.0, "source": "NVML", "clock before and after (MHz)": [1980, 1900], "throttle reasons": "none",
    }  # fmt: skip


def test_speed_is_ours_over_the_vendors(session, monkeypatch):
    record = made(samples_per_epoch=100, train_seconds=[9.0, 2.0]) | {"gpu_memory_by_rank": {"peak_allocated_bytes": [2**31]}}
    use(monkeypatch, speed, record)
    numbers = speed.ours(session, "single", "transformer-base", "fp32", False, 64, lambda: {"fp32": 100.0})
    assert numbers == {"samples/s": 50.0, "peak allocated (GiB)": 2.0, "vendor's samples/s": 100.0, "ratio": 0.5}


def test_what_a_checkout_lacks_is_skipped(session):
    assert "no workload transformer-9b" in checking.made("", Todo("", lambda: speed.expect("transformer-9b", "fp32"))).reason
    assert "no --precision fp4" in checking.made("", Todo("", lambda: speed.expect("cnn", "fp4"))).reason


def test_every_part_lists_its_checks(session):
    for part in (agreement, breakdown, memory, profile, speed):
        checks = part.todo(session)
        assert len({todo.what for todo in checks}) == len(checks) > 0


def test_a_line_has_what_was_measured_or_the_reason():
    assert "the reason" in Check("speed", "cnn", 1.0, "failed", "the reason", {}).line()
