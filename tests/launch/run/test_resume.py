"""--resume: missing runs are run, completed ones are skipped, records of other settings are refused."""

import contextlib
import json
import threading

import pytest

from common import workloads
from common.config import Settings, as_json
from common.errors import UserError
from common.record import records
from launch.run import resume, runner
from launch.run.plan import plan
from tests.support import kills
from tests.support.made_records import made
from tests.support.running import matrix, records_in


def test_the_last_matrix_is_the_one_with_the_latest_stamp(tmp_path):
    with pytest.raises(UserError, match="there is no matrix in"):
        resume.last_stamp(tmp_path / "none")
    names = ("20250101-120000-cnn-ddp-n1-r0", "20250102-110000-cnn-deepspeed_zero@3-n2-r0", "20250103-110000-cnn-ddp-n1-s1", "notes")
    for name in names:
        (tmp_path / f"{name}.json").touch()
    assert resume.last_stamp(tmp_path) == "20250102-110000"


def jobs_in(folder, **changes):
    return plan(["ddp", "horovod_torch"], ["cnn"], (1, 2), 1, None, Settings(results=folder, machine="here", **changes), "stamp")


def leave(job, status):
    settings = as_json(workloads.resolve(job.settings, job.num_ranks))
    path = records.folder(job.settings) / f"{job.settings.run_id}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(made() | {"status": status, "settings": settings}))


def test_only_completed_runs_are_skipped(tmp_path):
    jobs = jobs_in(tmp_path)
    for job, status in zip(jobs, ("ok", "failed", "started"), strict=False):
        leave(job, status)
    done, missing = resume.divided(jobs)
    assert [record.settings.run_id for record in done] == [jobs[0].settings.run_id]
    assert missing == jobs[1:]


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ({}, {"epochs": 3}, "--epochs was 20 and is 3"),
        ({}, {"seed": 2}, "--seed was 1 and is 2"),
        ({"device": "cpu"}, {"device": "cuda"}, "--device was cpu and is cuda"),
        # A matrix of before left the device to its runs.
        ({"device": "auto"}, {"device": "cpu"}, None),
    ],
)
def test_a_record_of_other_settings_is_not_mixed_with(before, now, message, tmp_path):
    leave(jobs_in(tmp_path, **before)[0], "ok")
    with pytest.raises(UserError, match=message) if message else contextlib.nullcontext():
        assert len(resume.divided(jobs_in(tmp_path, **now))[0]) == 1


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
def test_an_interrupted_matrix_is_resumed(checkout, tmp_path):
    arguments = ("1", "--workloads", "cnn", "--backends", "single", "--repeats", "2", "--epochs", "1", "--no-step-breakdown")
    first = matrix(checkout, tmp_path, *arguments)
    assert first.returncode == 0, first.stdout + first.stderr
    completed, interrupted = sorted((tmp_path / "here").glob("*.json"))
    before = completed.read_bytes()
    interrupted.write_text(json.dumps(json.loads(interrupted.read_text()) | {"status": "failed", "error": "interrupted"}))
    again = matrix(checkout, tmp_path, *arguments, "--resume")
    assert again.returncode == 0, again.stdout + again.stderr
    assert [record["status"] for record in records_in(tmp_path)] == ["ok"] * 2
    assert completed.read_bytes() == before
    assert "single" in again.stdout
    refused = matrix(checkout, tmp_path, *arguments, "--resume", "--seed", "5")
    assert (refused.returncode, "is of another matrix" in refused.stderr) == (2, True)
    assert completed.read_bytes() == before
