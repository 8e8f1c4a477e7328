"""Which groups of a matrix are run again, and what becomes of their records."""

import json

from common.config import Settings
from launch.run import runner, session
from launch.run.plan import groups, plan
from tests.support.made_records import noisy, typed

STAMP = "20260101-000000"


def test_groups_with_a_disturbed_run_are_run_again_and_their_records_kept_aside(tmp_path):
    settings = Settings(results=tmp_path, machine="here")
    jobs = plan(["single", "ddp"], ["cnn"], [1], 3, None, settings, STAMP)
    numbered = [list(enumerate(group)) for group in groups(jobs, True, 1)]
    speeds = {("ddp", 1): [10.0, 8.0]}
    written = [
        noisy(speeds.get((job.backend, job.settings.repeat), [10.0, 10.0]), backend=job.backend, repeat=job.settings.repeat) for job in jobs
    ]
    done = typed(written)
    assert session.disturbed(numbered, done, 25.0) == []
    assert session.disturbed(numbered, done, 5.0) == [numbered[1]]
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
