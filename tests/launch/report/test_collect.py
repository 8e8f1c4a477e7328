"""Every file is either read as a record or listed with the reason; none is silently left out."""

import json
import math

import pytest

from common.errors import UserError
from common.record import records
from launch.report.collect import collect, state
from tests.support.made_records import made, step_breakdown


def write(folder, name, content):
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text)
    return folder / name


def test_records_of_folders_and_files_are_read_once(tmp_path):
    (tmp_path / "there").mkdir()
    path = write(tmp_path / "there", "b.json", made(num_ranks=2))
    write(tmp_path, "a.json", made())
    collected, damaged = collect([tmp_path, path, tmp_path / "there"])
    assert ([record.num_ranks for record in collected], damaged) == ([1, 2], [])


def changed(part, *without, **changes):
    """A record with changes in its settings or its environment."""
    record = made()
    return record | {part: {name: value for name, value in record[part].items() if name not in without} | changes}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("b.json", "", "not JSON"),
        ("b.json", json.dumps(made())[:500], "not JSON"),
        ("b.json", "[1]", "not a record: it has no schema"),
        ("b.json", {"schema": records.SCHEMA}, "violates results/schema.json"),
        ("b.json", made() | {"num_ranks": "two"}, "violates results/schema.json: num_ranks"),
        ("b.json", made() | {"in_sync": None}, "violates results/schema.json: in_sync"),
        ("b.json.part", made(), "incomplete"),
        ("b.json", json.dumps(made() | {"accuracy": math.nan}), "not JSON: NaN is not a JSON number"),
        ("b.json", json.dumps(made() | {"energy_joules": math.inf}), "not JSON: Infinity is not a JSON number"),
        pytest.param("b.json", made() | {"samples_per_second": 10**400}, "000… is too large a number", id="whole"),
        ("b.json", json.dumps(made()).replace('"accuracy": 0.98', '"accuracy": -1e999'), "not JSON: -1e999 is too large a number"),
        pytest.param("b.json", "[" * 100_000, "not JSON", id="deep"),
        ("b.json", made() | {"started_at": "yesterday"}, "violates results/schema.json: started_at"),
        ("b.json", made() | {"samples_per_second": 0.0}, "violates results/schema.json: samples_per_second"),
        ("b.json", changed("settings", machine=None), "violates results/schema.json: settings/machine"),
        ("b.json", changed("settings", run_id=7), "violates results/schema.json: settings/run_id"),
        ("b.json", changed("settings", "batch_size"), "violates results/schema.json: settings"),
        ("b.json", changed("environment", "mpi"), "violates results/schema.json: environment"),
        ("b.json", changed("environment", cpu=None), "violates results/schema.json: environment/cpu"),
        ("b.json", made() | {"step_breakdown": step_breakdown() | {"step_seconds": []}}, ": step_breakdown/step_seconds"),
        (
            "b.json",
            made() | {"step_breakdown": step_breakdown() | {"compute_seconds": [None]}},
            ": step_breakdown/compute_seconds",
        ),
    ],
)
def test_invalid_records_are_listed_with_the_reason(name, content, reason, tmp_path):
    write(tmp_path, "a.json", made())
    path = write(tmp_path, name, content)
    collected, damaged = collect([tmp_path])
    assert len(collected) == 1
    assert [(file.path, reason in file.reason) for file in damaged] == [(path, True)]


def test_trace_files_are_not_damaged_records(tmp_path):
    traces = tmp_path / f"a{records.TRACES_END}"
    traces.mkdir()
    write(traces, "mpi_profile.1.0.json", {"format": "tandem mpi profile 1"})
    write(traces, "horovod_timeline.json", "[{},")
    write(tmp_path, "a.json", made())
    collected, damaged = collect([tmp_path])
    assert (len(collected), damaged) == (1, [])


@pytest.mark.parametrize("run_id", ["mine", None])
def test_a_copy_of_a_run_is_not_a_repeat(run_id, tmp_path):
    for name in ("a.json", "b.json"):
        write(tmp_path, name, changed("settings", run_id=run_id))
    collected, damaged = collect([tmp_path])
    assert (len(collected), damaged[0].reason) == (1, f"the same run as {tmp_path / 'a.json'}")


def test_a_link_to_itself_is_listed(tmp_path):
    path = write(tmp_path, "a.json", made())
    (tmp_path / "b.json").symlink_to(tmp_path / "b.json")
    collected, damaged = collect([tmp_path])
    assert (len(collected), [file.path.name for file in damaged], list(state([tmp_path]))) == (1, ["b.json"], [path])


def test_binary_files_are_listed(tmp_path):
    write(tmp_path, "a.json", made())
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    assert len(collect([tmp_path])[1]) == 1


def test_a_record_of_another_schema_is_refused_and_named(tmp_path):
    write(tmp_path, "a.json", made())
    write(tmp_path, "b.json", made() | {"schema": 1})
    with pytest.raises(UserError, match=r"b\.json has schema 1, this version of Tandem reads 3"):
        collect([tmp_path])


@pytest.mark.parametrize("name", ["nothing", "none"])
def test_paths_without_records_are_an_error(name, tmp_path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UserError, match=r"there is no record|does not exist"):
        collect([tmp_path / name])


def test_damaged_files_alone_are_an_error_naming_one(tmp_path):
    write(tmp_path, "b.json", "{")
    with pytest.raises(UserError, match=r"there is no record in .*b\.json: not JSON"):
        collect([tmp_path])


def test_a_run_without_a_run_id_takes_its_file_name(tmp_path):
    record = made()
    record["settings"]["run_id"] = None
    write(tmp_path, "a.json", record)
    write(tmp_path, "b.json", record | {"losses": [3.0]})
    assert [record.settings.run_id for record in collect([tmp_path])[0]] == ["a", "b"]


def test_the_schema_file_is_not_a_record():
    collected, damaged = collect([records.ROOT / "results"])
    assert (bool(collected), damaged) == (True, [])
