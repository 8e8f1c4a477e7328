"""--resume: missing runs are run, completed ones are skipped, records of other settings are refused."""

import json
import os
import subprocess
import threading
import time

import pytest

from common import workloads
from common.config import Settings, as_json
from common.errors import UserError
from common.record import records
from launch.run import resume, runner, supervisor
from launch.run.plan import plan
from tests.support.made_records import made
from tests.support.running import matrix


def test_the_last_matrix_is_the_one_with_the_latest_stamp(tmp_path):
    names = ("20250101-120000-cnn-ddp-n1-r0", "20250102-110000-cnn-deepspeed_zero@3-n2-r0", "20250103-110000-cnn-ddp-n1-s1", "notes")
    for name in names:
        (tmp_path / f"{name}.json").touch()
    assert resume.last_stamp(tmp_path) == "20250102-110000"


def test_without_a_matrix_there_is_none_to_resume(tmp_path):
    with pytest.raises(UserError, match="there is no matrix in"):
        resume.last_stamp(tmp_path / "none")


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


@pytest.mark.parametrize(("changes", "message"), [({"epochs": 3}, "--epochs was 20 and is 3"), ({"seed": 2}, "--seed was 1 and is 2")])
def test_a_record_of_other_settings_is_not_mixed_with(changes, message, tmp_path):
    leave(jobs_in(tmp_path)[0], "ok")
    with pytest.raises(UserError, match=message):
        resume.divided(jobs_in(tmp_path, **changes))


@pytest.mark.parametrize(("before", "now", "message"), [("auto", "cpu", None), ("cpu", "cuda", "--device was cpu and is cuda")])
def test_a_matrix_that_left_the_device_to_its_runs_is_resumed_on_any(before, now, message, tmp_path):
    leave(jobs_in(tmp_path, device=before)[0], "ok")
    if message:
        with pytest.raises(UserError, match=message):
            resume.divided(jobs_in(tmp_path, device=now))
    else:
        assert len(resume.divided(jobs_in(tmp_path, device=now))[0]) == 1


@pytest.fixture
def running(tmp_path):
    """A process that carries the mark of the first of the jobs."""
    process = subprocess.Popen(["sleep", "60"], env=os.environ | {supervisor.MARK: runner.mark_of(jobs_in(tmp_path)[0])})
    while process.pid not in supervisor.marked():
        time.sleep(0.01)
    yield process
    process.kill()
    process.wait()


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
    fixed = ("1", "--workloads", "cnn", "--backends", "single", "--repeats", "2", "--epochs", "1", "--no-step-breakdown")
    first = matrix(checkout, tmp_path, *fixed)
    assert first.returncode == 0, first.stdout + first.stderr
    completed, interrupted = sorted((tmp_path / "here").glob("*.json"))
    before = completed.read_bytes()
    interrupted.write_text(json.dumps(json.loads(interrupted.read_text()) | {"status": "failed", "error": "interrupted"}))
    again = matrix(checkout, tmp_path, *fixed, "--resume")
    assert again.returncode == 0, again.stdout + again.stderr
    assert len(list((tmp_path / "here").glob("*.json"))) == 2
    assert completed.read_bytes() == before
    assert json.loads(interrupted.read_text())["status"] == "ok"
    assert "single" in again.stdout
    other = matrix(checkout, tmp_path, *fixed, "--resume", "--seed", "5")
    assert (other.returncode, "is of another matrix" in other.stderr) == (2, True)
    assert completed.read_bytes() == before
