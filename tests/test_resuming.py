"""A matrix that goes on: what is missing is run, what is there is not run again, and nothing is mixed."""

import json
import subprocess

import pytest

from common import records, workloads
from common.config import Settings, as_json
from common.errors import UserError
from launch import resuming
from launch.plan import plan
from tests.running import BIN, environ


def test_the_last_matrix_is_the_one_with_the_latest_stamp(tmp_path):
    names = ("20250101-120000-cnn-ddp-n1-r0", "20250102-110000-cnn-deepspeed_zero@3-n2-r0", "20250103-110000-cnn-ddp-n1-s1", "notes")
    for name in names:
        (tmp_path / f"{name}.json").touch()
    assert resuming.last_stamp(tmp_path) == "20250102-110000"


def test_where_there_was_no_matrix_there_is_none_to_go_on_with(tmp_path):
    with pytest.raises(UserError, match="there is no matrix in"):
        resuming.last_stamp(tmp_path / "none")


def jobs_in(folder, **changes):
    return plan(["ddp", "horovod_torch"], ["cnn"], (1, 2), 1, None, Settings(results=folder, machine="here", **changes), "stamp")


def leave(job, status):
    settings = as_json(workloads.resolve(job.settings, job.ranks))
    path = records.folder(job.settings) / f"{job.settings.run_id}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"schema": records.SCHEMA, "status": status, "settings": settings}))


def test_only_what_came_to_a_good_end_is_done(tmp_path):
    jobs = jobs_in(tmp_path)
    for job, status in zip(jobs, ("ok", "failed", "started"), strict=False):
        leave(job, status)
    done, missing = resuming.divided(jobs)
    assert [record["settings"]["run_id"] for record in done] == [jobs[0].settings.run_id]
    assert missing == jobs[1:]


@pytest.mark.parametrize(("changes", "said"), [({"epochs": 3}, "--epochs was 24 and is 3"), ({"seed": 2}, "--seed was 1 and is 2")])
def test_a_record_of_other_settings_is_not_mixed_with(changes, said, tmp_path):
    leave(jobs_in(tmp_path)[0], "ok")
    with pytest.raises(UserError, match=said):
        resuming.divided(jobs_in(tmp_path, **changes))


def test_what_an_older_record_does_not_know_was_at_its_default(tmp_path):
    job = jobs_in(tmp_path)[0]
    leave(job, "ok")
    path = tmp_path / "here" / f"{job.settings.run_id}.json"
    record = json.loads(path.read_text())
    del record["settings"]["stall_limit"]
    path.write_text(json.dumps(record))
    assert resuming.divided([job])[1] == []
    with pytest.raises(UserError, match=r"--stall-limit was 120\.0 and is 7\.0"):
        resuming.divided(jobs_in(tmp_path, stall_limit=7.0))


@pytest.mark.matrix
def test_an_interrupted_matrix_goes_on(checkout, tmp_path):
    def matrix(*arguments):
        fixed = ("--workloads", "cnn", "--backends", "single,ddp", "--epochs", "1", "--no-account")
        fixed += ("--results", tmp_path, "--machine", "here")
        command = [BIN / "python", "-m", "launch.matrix", "1", *fixed, *arguments]
        return subprocess.run(command, cwd=checkout, env=environ(), capture_output=True, text=True, timeout=120, check=False)

    first = matrix()
    assert first.returncode == 0, first.stdout + first.stderr
    single, ddp = (next((tmp_path / "here").glob(f"*-{name}-*.json")) for name in ("single", "ddp"))
    before = single.read_bytes()
    ddp.write_text(json.dumps(json.loads(ddp.read_text()) | {"status": "failed", "error": "interrupted"}))
    again = matrix("--resume")
    assert again.returncode == 0, again.stdout + again.stderr
    assert len(list((tmp_path / "here").glob("*.json"))) == 2
    assert single.read_bytes() == before
    assert json.loads(ddp.read_text())["status"] == "ok"
    assert "single" in again.stdout
    other = matrix("--resume", "--seed", "5")
    assert (other.returncode, "is of another matrix" in other.stderr) == (2, True)
    assert single.read_bytes() == before
