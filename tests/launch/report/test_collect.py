"""Every file is either read as a record or listed with the reason; none is silently left out."""

import json
import math

import pytest

from common.errors import UserError
from common.record import records
from launch.report.collect import collect, state
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
        ("", "not JSON"),
        (json.dumps(made())[:500], "not JSON"),
        (json.dumps(made() | {"accuracy": math.nan}), "not JSON: NaN is not a JSON number"),
        pytest.param(made() | {"samples_per_second": 10**400}, "000… is too large a number", id="whole"),
        (json.dumps(made()).replace('"accuracy": 0.98', '"accuracy": -1e999'), "not JSON: -1e999 is too large a number"),
        pytest.param("[" * 100_000, "not JSON", id="deep"),
        ("[1]", "not a record: it has no schema"),
        ({"schema": records.SCHEMA}, "violates results/schema.json: record"),
        (made() | {"num_ranks": "two"}, "violates results/schema.json: num_ranks"),
        (made() | {"in_sync": None}, "violates results/schema.json: in_sync"),
        (with_settings(machine=None), "violates results/schema.json: settings/machine"),
        (made() | {"step_breakdown": step_breakdown() | {"step_seconds": []}}, ": step_breakdown/step_seconds"),
        (made() | {"step_breakdown": step_breakdown() | {"compute_seconds": [None]}}, ": step_breakdown/compute_seconds"),
    ],
)
def test_invalid_records_are_listed_with_the_reason(content, reason, tmp_path):
    write(tmp_path / "a.json", made())
    path = write(tmp_path / "b.json", content)
    collected, damaged = collect([tmp_path])
    assert len(collected) == 1
    assert [(file.path, reason in file.reason) for file in damaged] == [(path, True)]


def test_incomplete_and_binary_files_and_links_to_themselves_are_listed(tmp_path):
    path, incomplete = write(tmp_path / "a.json", made()), write(tmp_path / "c.json.part", made())
    (tmp_path / "b.json").symlink_to(tmp_path / "b.json")
    (tmp_path / "d.json").write_bytes(b"\xff\xfe\x00")
    collected, damaged = collect([tmp_path])
    assert (len(collected), [file.path.name for file in damaged]) == (1, ["b.json", "c.json.part", "d.json"])
    assert damaged[1].reason.startswith("incomplete")
    assert list(state([tmp_path])) == [path, incomplete, tmp_path / "d.json"]


def test_trace_files_are_not_damaged_records(tmp_path):
    traces = tmp_path / f"a{records.TRACES_END}"
    write(traces / "mpi_profile.1.0.json", {"format": "tandem mpi profile 1"})
    write(traces / "horovod_timeline.json", "[{},")
    write(tmp_path / "a.json", made())
    collected, damaged = collect([tmp_path])
    assert (len(collected), damaged) == (1, [])


@pytest.mark.parametrize("run_id", ["mine", None])
def test_a_copy_of_a_run_is_not_a_repeat(run_id, tmp_path):
    for name in ("a.json", "b.json"):
        write(tmp_path / name, with_settings(run_id=run_id))
    collected, damaged = collect([tmp_path])
    assert (len(collected), damaged[0].reason) == (1, f"the same run as {tmp_path / 'a.json'}")


@pytest.mark.parametrize(
    ("contents", "path", "message"),
    [
        ({"a.json": made(), "b.json": made() | {"schema": 1}}, "", r"b\.json has schema 1, this version of Tandem reads 3"),
        ({}, "", "there is no record"),
        ({}, "none", "does not exist"),
        ({"b.json": "{"}, "", r"there is no record in .*b\.json: not JSON"),
    ],
)
def test_another_schema_and_no_record_at_all_are_an_error(contents, path, message, tmp_path):
    for name, content in contents.items():
        write(tmp_path / name, content)
    with pytest.raises(UserError, match=message):
        collect([tmp_path / path])


def test_a_run_without_a_run_id_takes_its_file_name(tmp_path):
    write(tmp_path / "a.json", with_settings(run_id=None))
    write(tmp_path / "b.json", with_settings(run_id=None) | {"losses": [3.0]})
    assert [record.settings.run_id for record in collect([tmp_path])[0]] == ["a", "b"]


def test_the_schema_file_is_not_a_record(tmp_path):
    (tmp_path / "schema.json").symlink_to(records.ROOT / "results" / "schema.json")
    write(tmp_path / "here" / "a.json", made())
    collected, damaged = collect([tmp_path])
    assert (len(collected), damaged) == (1, [])
