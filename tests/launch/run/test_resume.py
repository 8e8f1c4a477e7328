"""Matrices beside each other in one folder, and --resume: which one is resumed, and what of it is run."""

import json
import multiprocessing
import threading

import pytest

from common import workloads
from common.config import Settings, as_json
from common.errors import UserError
from common.record import records
from launch.run import resume, runner
from launch.run.plan import plan, stamped
from tests.support import kills
from tests.support.made_records import made
from tests.support.running import matrix, records_in


def jobs_in(folder, **changes):
    return plan(["ddp", "horovod_torch"], ["cnn"], (1, 2), 1, None, Settings(results=folder, machine="here", **changes))


def leave(job, status):
    settings = as_json(workloads.resolve(job.settings, job.num_ranks))
    path = records.folder(job.settings) / f"{job.settings.run_id}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(made() | {"status": status, "settings": settings, "error": "a line"}))


@pytest.mark.parametrize("result", ["ok", "diverged"])
def test_only_runs_with_a_result_are_skipped(result, tmp_path):
    jobs = jobs_in(tmp_path)
    for job, status in zip(jobs, (result, "failed", "started"), strict=False):
        leave(job, status)
    done, missing = resume.divided(jobs)
    assert [record.settings.run_id for record in done] == [jobs[0].settings.run_id]
    assert missing == jobs[1:]


def begin(folder, stamp, *statuses, allocation=None, **changes):
    """Leaves a matrix with this stamp and the records of its first jobs, as one that has ended does."""
    (folder / "here").mkdir(exist_ok=True)
    content = identity_in(folder, **changes) | {"allocation": allocation}
    (folder / "here" / f"{stamp}{resume.ENDING}").write_text(json.dumps(content))
    for job, status in zip(stamped(jobs_in(folder), stamp), statuses, strict=False):
        leave(job, status)


def identity_in(folder, sizes=(1, 2), ranks_per_node=None, **changes):
    backends = ["horovod_torch", "ddp"]
    return resume.identity(backends, ["cnn"], sizes, ranks_per_node, Settings(results=folder, machine="here", **changes))


def resumable(folder, **changes):
    return resume.resumable(folder / "here", identity_in(folder, **changes), jobs_in(folder))


COMPLETED, INTERRUPTED = ["ok"] * 4, ["ok", "started"]


@pytest.mark.parametrize(
    ("matrices", "expected"),
    [
        ({}, []),
        ({"a": (INTERRUPTED, {}), "b": (INTERRUPTED, {})}, ["b", "a"]),
        ({"a": (INTERRUPTED, {}), "b": (COMPLETED, {}), "c": (COMPLETED, {})}, ["a", "c", "b"]),
        ({"a": ([], {"allocation": "7"}), "b": (COMPLETED, {"allocation": "8"}), "c": (INTERRUPTED, {})}, ["b", "c", "a"]),
        ({"a": (INTERRUPTED, {}), "b": ([], {"sizes": (1,)}), "c": ([], {"epochs": 3}), "d": ([], {"ranks_per_node": 1})}, ["a"]),
        ({"a": (INTERRUPTED, {"seed": 2}), "b": ([], {"device": "cuda"})}, []),
    ],
)  # fmt: skip
def test_what_is_resumed_is_of_this_allocation_then_what_is_not_complete_then_the_latest_and_always_of_the_same_identity(
    matrices, expected, tmp_path, monkeypatch
):
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    for stamp, (statuses, changes) in matrices.items():
        begin(tmp_path, stamp, *statuses, **changes)
    assert resumable(tmp_path) == expected


def test_the_reason_for_which_a_new_matrix_begins_is_said(tmp_path):
    for stamp, changes, message in (
        ("a", {"sizes": (2,), "watchdog_timeout": 5.0}, "(a has other sizes, --watchdog-timeout); a new one begins"),
        ("b", {}, "(b is running); a new one begins"),
    ):
        begin(tmp_path, stamp, **changes)
        assert resume.describe_none(tmp_path / "here", identity_in(tmp_path)).endswith(message)


def test_a_matrix_of_before_a_setting_was_there_and_files_that_are_none_do_no_harm(tmp_path):
    begin(tmp_path, "a", "ok")
    content = json.loads((tmp_path / "here" / "a.matrix").read_text())
    del content["watchdog_timeout"]
    for stamp, text in {"b": json.dumps(content), "c": "", "d": "[1]", "e": "{}"}.items():
        (tmp_path / "here" / f"{stamp}.matrix").write_text(text)
    assert resumable(tmp_path) == ["b", "a"]
    assert resumable(tmp_path, watchdog_timeout=5.0) == []


def hold(folder, resumes, begun, may_end):
    stamps = [*(resumable(folder) if resumes else []), records.new_stamp()]
    with resume.held(folder / "here", stamps) as (stamp, file):
        resume.write(file, identity_in(folder))
        begun.put(stamp)
        may_end.wait()


def test_of_matrices_that_begin_at_once_each_has_a_stamp_of_its_own_also_where_they_would_resume(tmp_path):
    for stamp in "ab":
        begin(tmp_path, stamp, "ok")
    fork = multiprocessing.get_context("fork")
    begun, may_end = fork.Queue(), fork.Event()
    processes = [fork.Process(target=hold, args=(tmp_path, number % 2 == 0, begun, may_end), daemon=True) for number in range(40)]
    for process in processes:
        process.start()
    held = {begun.get(timeout=30) for _ in processes}
    assert len(held) == 40
    assert {"a", "b"} < held
    may_end.set()
    for process in processes:
        process.join()
    assert sorted(resumable(tmp_path)) == sorted(held)


@pytest.fixture
def running(tmp_path):
    """A process that carries the mark of the first of the jobs."""
    with kills.marked(runner.mark_of(jobs_in(tmp_path)[0]), "sleep", "60") as process:
        yield process


def test_a_run_that_has_not_ended_is_not_run_beside(running, tmp_path):
    with pytest.raises(UserError, match=rf"-ddp-n1-r0\.json has not ended \(pids {running.pid}\)"):
        resume.wait_until_ended(jobs_in(tmp_path), limit_seconds=0.2)
    resume.wait_until_ended(jobs_in(tmp_path / "other"), limit_seconds=0.2)


def test_a_run_that_is_ending_is_waited_for(running, tmp_path):
    threading.Timer(0.5, running.kill).start()
    resume.wait_until_ended(jobs_in(tmp_path), limit_seconds=20)
    assert running.wait(timeout=5) != 0


@pytest.mark.matrix
def test_a_matrix_is_resumed_with_the_repeats_that_it_lacks(checkout, tmp_path):
    arguments = ("1", "--workloads", "cnn", "--backends", "single", "--epochs", "1", "--no-step-breakdown", "--resume")
    first = matrix(checkout, tmp_path, *arguments)
    assert first.returncode == 0, first.stdout + first.stderr
    (completed,) = (tmp_path / "here").glob("*.json")
    before = completed.read_bytes()
    repeated = matrix(checkout, tmp_path, *arguments, "--repeats", "2")
    assert repeated.returncode == 0, repeated.stdout + repeated.stderr
    assert [(record["status"], record["repeat"]) for record in records_in(tmp_path)] == [("ok", 0), ("ok", 1)]
    assert completed.read_bytes() == before
    assert len(list(tmp_path.glob("here/*.matrix"))) == 1
    finished = matrix(checkout, tmp_path, *arguments)
    assert (finished.returncode, len(records_in(tmp_path))) == (0, 2)
    assert "have completed; without --resume a new matrix begins" in finished.stdout


@pytest.mark.matrix
def test_two_matrices_that_start_at_once_in_one_folder_end_nobodys_process_and_overwrite_no_record(checkout, tmp_path):
    short = ("--epochs", "1", "--steps-per-epoch", "2", "--share-machine")
    started = [kills.start(checkout, tmp_path, *short, *resumes) for resumes in ((), ("--resume",))]
    try:
        printed = [matrix.communicate(timeout=240)[0] for matrix in started]
    finally:
        for matrix in started:
            matrix.terminate()
    assert [matrix.returncode for matrix in started] == [0, 0], printed
    assert [record["status"] for record in records_in(tmp_path)] == ["ok"] * 2
    assert len(list(tmp_path.glob("here/*.html"))) == 2
