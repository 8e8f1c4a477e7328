"""Which groups of a matrix are run again, and what becomes of their records."""

import json

import pytest

from common.config import Settings
from launch.run import runner, session
from launch.run.display import Display
from launch.run.matrix_options import Matrix
from launch.run.plan import groups, plan, stamped
from launch.run.remaining import Remaining
from tests.support.made_records import made, noisy, typed

STAMP = "20260101-000000"


def test_groups_with_a_disturbed_run_are_run_again_and_their_records_kept_aside(tmp_path):
    settings = Settings(results=tmp_path, machine="here")
    jobs = stamped(plan(["single", "ddp"], ["cnn"], [1], 3, None, settings), STAMP)
    numbered = [list(enumerate(group)) for group in groups(jobs, True, 1)]
    speeds = {("ddp", 1): [10.0, 8.0]}
    written = [
        noisy(speeds.get((job.backend, job.settings.repeat), [10.0, 10.0]), backend=job.backend, repeat=job.settings.repeat) for job in jobs
    ]
    done = typed(written)
    assert session.beside_other_speeds(numbered, done, 25.0) == []
    assert session.beside_other_speeds(numbered, done, 5.0) == [numbered[1]]
    for job, record in zip(jobs, written, strict=True):
        runner.record_path(job).parent.mkdir(exist_ok=True)
        runner.record_path(job).write_text(json.dumps(record))
    session.set_aside(numbered[1], done)
    assert [(record.backend, record.repeat) for record in done] == [("single", 0), ("ddp", 0), ("single", 2), ("ddp", 2)]
    assert len(list((tmp_path / "here").glob("*.json"))) == 4
    # A second time, such as after --resume: what was kept before stays.
    ddp = next(job for job in jobs if (job.backend, job.settings.repeat) == ("ddp", 1))
    runner.record_path(ddp).write_text("again")
    session.set_aside(numbered[1], done)
    kept = sorted((path.name, path.read_text() == "again") for path in (tmp_path / "here").iterdir() if path.suffix != ".json")
    name = f"{STAMP}-cnn-{{}}-n1-r1.json.disturbed-{{}}".format
    assert kept == [(name("ddp", 1), False), (name("ddp", 2), True), (name("single", 1), False)]


@pytest.mark.parametrize(("options", "again"), [({}, [2]), ({"repeat_disturbed": False}, [])])
def test_a_disturbed_repeat_is_run_once_more_by_default_and_its_first_records_kept(tmp_path, monkeypatch, options, again):
    settings = Settings(results=tmp_path, machine="here")
    jobs = stamped(plan(["horovod_tf", "ddp"], ["cnn"], [2], 6, None, settings), STAMP)
    numbered = [list(enumerate(group)) for group in groups(jobs, True, 2)]
    (tmp_path / "here").mkdir()
    run_records = []

    def run(group, *_):
        """It stays disturbed."""
        for _, job in group:
            seconds = 30.0 if job.settings.repeat == 2 else 10.0
            record = made(job.backend, 2, repeat=job.settings.repeat, seconds=seconds)
            runner.record_path(job).write_text(json.dumps(record))
            run_records.extend(typed([record]))
        ran.append(group[0][1].settings.repeat)

    ran = []
    for group in numbered:
        run(group)
    ran.clear()
    monkeypatch.setattr(session, "run_group", run)
    with Display(len(jobs)) as display:
        session.run_again(Matrix(**options), numbered, None, display, run_records, Remaining(None), None)
    assert ran == again
    assert len(run_records) == len(jobs)
    assert {path.name for path in (tmp_path / "here").glob("*.disturbed-*")} == {
        f"{STAMP}-cnn-{backend}-n2-r{repeat}.json.disturbed-1" for repeat in again for backend in ("horovod_tf", "ddp")
    }
