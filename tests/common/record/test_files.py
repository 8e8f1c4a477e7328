"""The record of a run on disk: of one schema version, without secrets; it has every key once it is read."""

import dataclasses
import json
import math

import pytest

from common.config import Settings
from common.ranks.launcher_variables import Ranks
from common.record import definition, environment, files
from common.workloads import batch_plan, resolve
from tests.support.mistakes import refused

LAUNCH = {"launcher": "mpich", "command": "mpiexec -n 2 python", "launched_at": None}


def new(**changes):
    settings = resolve(Settings(seed=7, repeat=2, machine="here"), 2)
    record = definition.new("ddp", settings, Ranks(size=2), batch_plan(settings, 2), LAUNCH, environment.describe())
    return dataclasses.replace(record, **changes)


def test_a_record_is_read_as_it_was_written_and_nothing_else_is_left(tmp_path):
    path, record = tmp_path / "run.json", new()
    files.write(path, record)
    assert files.as_json(files.read(path)) == files.as_json(record)
    assert files.read(path).settings == resolve(Settings(seed=7, repeat=2, machine="here"), 2)
    assert list(tmp_path.iterdir()) == [path]


def test_each_key_has_a_line(tmp_path):
    files.write(tmp_path / "run.json", new())
    keys = [line.split(":")[0].strip(' "') for line in (tmp_path / "run.json").read_text().splitlines()[1:-1]]
    assert keys == keys_of(definition.Record)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_become_null(value, tmp_path):
    path = tmp_path / "run.json"
    files.write(path, new(accuracy=value, losses=[1.5, value], environment={"deep": [{"er": value}]}))
    # Python's JSON reader accepts NaN by default; others refuse it.
    record = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert (record["accuracy"], record["losses"], record["environment"]) == (None, [1.5, None], {"deep": [{"er": None}]})


def test_what_is_no_record_is_named_with_the_remedy(tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(b"half\0a record")
    with refused(str(path), "move it away, or give another folder with --results"):
        files.read(path)


def keys_of(kind):
    return [field.name for field in dataclasses.fields(kind)]


@pytest.mark.parametrize(
    ("machine", "cluster", "pbs_job", "name"),
    [
        ("mine", "polaris", "8.head.example", "mine"),
        (None, "polaris", "8.head.example", "polaris"),
        (None, "", "8.head.example", "head"),
        (None, None, "8", "node17"),
        (None, "", None, "node17"),
    ],
)
def test_the_machine_is_named_by_the_user_else_by_its_cluster_else_by_its_host(machine, cluster, pbs_job, name, monkeypatch):
    monkeypatch.setattr(files.socket, "gethostname", lambda: "node17.cluster.example")
    for variable, value in (("SLURM_CLUSTER_NAME", cluster), ("PBS_JOBID", pbs_job)):
        monkeypatch.delenv(variable, raising=False)
        if value is not None:
            monkeypatch.setenv(variable, value)
    assert files.machine_name(machine) == name


@pytest.mark.parametrize("name", ["../..", "a/b", "-x", "a b"])
def test_a_name_of_a_cluster_that_names_no_folder_below_the_results_is_refused(name, monkeypatch):
    monkeypatch.setenv("SLURM_CLUSTER_NAME", name)
    with refused(f"this machine calls itself {name!r}; use letters, digits"):
        files.machine_name(None)


def test_a_folder_that_cannot_be_made_is_refused_and_one_that_can_is_made_when_asked_for_and_left_empty(tmp_path):
    (tmp_path / "file").write_text("mine")
    for below in ("", "here", "further/down"):
        path = tmp_path / "file" / below
        with refused(str(path), "give another folder with --results"):
            files.make_folder(path)
        with refused(f"cannot write records to {path} ({tmp_path / 'file'} is not a folder); give another folder with --results"):
            files.expect_writable(path)
    files.expect_writable(tmp_path / "results" / "here")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"
    for _ in range(2):
        files.make_folder(tmp_path / "results" / "here")
        assert list((tmp_path / "results" / "here").iterdir()) == []
