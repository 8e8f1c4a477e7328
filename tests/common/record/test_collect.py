"""Every file is either read as a record or listed with the reason; none is silently left out."""

import errno
import json
import math
import os

import pytest

from common.declarations import ROOT
from common.errors import UserError
from common.record import files
from common.record.definition import SCHEMA
from launch.report.runs import collect
from tests.support.made_records import made, step_breakdown


def write(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_records_of_folders_and_files_are_read_once(tmp_path):
    path = write(tmp_path / "there" / "b.json", made(num_ranks=2))
    write(tmp_path / "a.json", made())
    collected, damaged = collect([tmp_path, path, tmp_path / "there"])
    assert ([record.num_ranks for record in collected], damaged) == ([1, 2], [])


def with_settings(**changes):
    record = made()
    return record | {"settings": record["settings"] | changes}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (json.dumps(made())[:500], "not JSON"),
        (json.dumps(made() | {"accuracy": math.nan}), "not JSON: Out of range float values"),
        pytest.param(made() | {"samples_per_second": 10**400}, "not a record: samples_per_second: it should be", id="whole"),
        (json.dumps(made()).replace('"accuracy": 0.98', '"accuracy": -1e999'), "not JSON: Out of range float values"),
        pytest.param("[" * 100_000, "not JSON", id="deep"),
        ("[1]", "not a record: it has no schema"),
        (made() | {"schema": ["x"] * 20}, "has schema ['x', 'x', 'x', 'x'…; this version of Tandem reads 3"),
        ({"schema": SCHEMA}, "not a record: started_at: it is missing"),
        (made() | {"num_ranks": "two"}, 'not a record: num_ranks: it should be a valid integer, not "two"'),
        (made() | {"in_sync": None}, "not a record: in_sync: a completed run has it"),
        (with_settings(machine=None), "not a record: settings/machine: every run has it"),
        (made() | {"step_breakdown": step_breakdown() | {"step_seconds": []}}, "step_breakdown/step_seconds: it has 0 values for 1 ranks"),
        (json.dumps(made()).replace('"repeat": 0', '"repeat": 0, "repeat": 0'), "not JSON: the key 'repeat' stands there twice"),
        (with_settings(data_format="parquet"), "not a record: settings/data_format: it should be 'memory'"),
        (with_settings(run_id=5), "not a record: settings/run_id: it should be a valid string, not 5"),
        (with_settings(threads=10**30), "not a record: settings/threads: it should be less than or equal to 4096"),
        (made() | {"init_seconds": -1.0}, "not a record: init_seconds: it should be greater than or equal to 0, not -1.0"),
        (
            made() | {"step_breakdown": step_breakdown() | {"compute_seconds": [None]}},
            "step_breakdown/compute_seconds/0: it should be a valid number, not null",
        ),
    ],
)
def test_invalid_records_are_listed_with_the_reason(content, reason, tmp_path):
    write(tmp_path / "a.json", made())
    path = write(tmp_path / "b.json", content)
    collected, damaged = collect([tmp_path])
    assert len(collected) == 1
    assert [(file.path, reason in file.reason) for file in damaged] == [(path, True)]


def test_incomplete_and_binary_files_and_links_to_themselves_are_listed(tmp_path):
    write(tmp_path / "a.json", made())
    write(tmp_path / "c.json.part", made())
    (tmp_path / "b.json").symlink_to(tmp_path / "b.json")
    (tmp_path / "d.json").write_bytes(b"\xff\xfe\x00")
    collected, damaged = collect([tmp_path])
    assert (len(collected), [file.path.name for file in damaged]) == (1, ["b.json", "c.json.part", "d.json"])
    assert damaged[1].reason.startswith("incomplete")


def test_what_is_no_regular_file_or_cannot_be_entered_is_listed_and_not_waited_for(tmp_path, monkeypatch):
    write(tmp_path / "here" / "a.json", made())
    write(tmp_path / ".b.json", "{")
    os.mkfifo(tmp_path / "here" / "b.json")
    (tmp_path / "linked").symlink_to(tmp_path / "here")
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    # Permissions do not keep root out.
    def refusing(path):
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    collected, damaged = collect([tmp_path])
    assert len(collected) == 1
    assert sorted(damaged) == [
        (tmp_path / "closed", "Permission denied"),
        (tmp_path / "here" / "b.json", "not a regular file"),
        (tmp_path / "linked", "a link to a folder, which is not followed; name that too"),
    ]
    with pytest.raises(UserError, match="not a regular file"):
        collect([tmp_path / "here" / "b.json"])


@pytest.mark.parametrize("run_id", ["mine", None])
def test_a_copy_of_a_run_is_not_a_repeat(run_id, tmp_path):
    for name in ("a.json", "b.json"):
        write(tmp_path / name, with_settings(run_id=run_id))
    write(tmp_path / "later.json", with_settings(run_id=run_id) | {"started_at": "2026-01-01T01:00:00Z"})
    collected, damaged = collect([tmp_path])
    assert (len(collected), [file.reason for file in damaged]) == (2, [f"the same run as {tmp_path / 'a.json'}"])


@pytest.mark.parametrize(
    ("contents", "path", "message"),
    [
        ({"b.json": made() | {"schema": 1}}, "", r"there is no record in .*b\.json: has schema 1; this version of Tandem reads 3"),
        ({}, "", "there is no record"),
        ({}, "none", "does not exist"),
    ],
)
def test_no_record_at_all_is_an_error(contents, path, message, tmp_path):
    for name, content in contents.items():
        write(tmp_path / name, content)
    with pytest.raises(UserError, match=message):
        collect([tmp_path / path])


def test_a_run_without_a_run_id_takes_its_file_name(tmp_path):
    write(tmp_path / "a.json", with_settings(run_id=None))
    write(tmp_path / "b.json", with_settings(run_id=None) | {"losses": [3.0]})
    assert [record.settings.run_id for record in collect([tmp_path])[0]] == ["a", "b"]


def test_the_files_of_traces_and_the_schema_are_no_damaged_records(tmp_path):
    write(tmp_path / f"a{files.TRACES_END}" / "horovod_timeline.json", "[{},")
    (tmp_path / "schema.json").symlink_to(ROOT / "results" / "schema.json")
    write(tmp_path / "here" / "a.json", made())
    collected, damaged = collect([tmp_path])
    assert (len(collected), damaged) == (1, [])
