"""The record of a run on disk: of one schema version, without secrets; it has every key once it is read."""

import dataclasses
import json
import math

import pytest

from common.config import Settings
from common.process.ranks import Ranks
from common.record import definition, records
from common.workloads import batch_plan, resolve
from tests.support.made_records import VALIDATOR, made
from tests.support.mistakes import refused

LAUNCH = {"launcher": "mpich", "command": "mpiexec -n 2 python", "launched_at": None}


def new(**changes):
    settings = resolve(Settings(seed=7, repeat=2), 2)
    record = records.new("ddp", settings, Ranks(size=2), batch_plan(settings, 2), LAUNCH, records.environment())
    records.update(record, changes)
    return record


def test_a_record_is_read_as_it_was_written_and_nothing_else_is_left(tmp_path):
    path, record = tmp_path / "run.json", new()
    records.write(path, record)
    assert records.as_json(records.read(path)) == records.as_json(record)
    assert records.read(path).settings == resolve(Settings(seed=7, repeat=2), 2)
    assert list(tmp_path.iterdir()) == [path]


def test_each_key_has_a_line(tmp_path):
    records.write(tmp_path / "run.json", new())
    keys = [line.split(":")[0].strip(' "') for line in (tmp_path / "run.json").read_text().splitlines()[1:-1]]
    assert keys == keys_of(definition.Record)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_become_null(value, tmp_path):
    path = tmp_path / "run.json"
    records.write(path, new(accuracy=value, losses=[1.5, value], environment={"deep": [{"er": value}]}))
    # Python's JSON reader accepts NaN by default; others refuse it.
    record = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert (record["accuracy"], record["losses"], record["environment"]) == (None, [1.5, None], {"deep": [{"er": None}]})


def test_a_new_record_has_the_run_and_no_results():
    record = records.as_json(new())
    expected = {"schema": records.SCHEMA, "status": "started", "backend": "ddp", "workload": "cnn", "num_ranks": 2, "repeat": 2, "seed": 7}
    expected |= {"scaling": "weak", "launcher": "mpich", "command": "mpiexec -n 2 python", "target": 0.94}
    assert record.items() >= expected.items()
    assert record["settings"]["learning_rate_factor"] == 2.0
    for name in ("error", "workload_digest", "reached", "time_to_solution_seconds", "accuracy", "in_sync", "oversubscribed"):
        assert record[name] is None
    assert record["losses"] == record["step_seconds"] == record["parameter_digests"] == []


@pytest.mark.parametrize("content", [b"", b'{"schema": 1', b"half\0a record", b"\xff", pytest.param(b"[" * 100_000, id="deep")])
def test_a_damaged_record_is_named(content, tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with refused(str(path), "move it away"):
        records.read(path)


@pytest.mark.parametrize("content", [{}, {"schema": 1}, {"schema": "3"}, [1], None])
def test_a_record_of_another_schema_is_named(content, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(content))
    with refused(str(path), "schema", "--results"):
        records.read(path)


def test_all_records_of_a_folder_are_read_by_name_without_traces_and_parts(tmp_path):
    traces = tmp_path / "polaris" / f"c{records.TRACES_END}"
    traces.mkdir(parents=True)
    for name in ("b.json", "a.json", "polaris/c.json"):
        records.write(tmp_path / name, new(error=name))
    (tmp_path / "d.json.part").write_text("{")
    for hidden in ("._a.json", "polaris/._c.json", ".ipynb_checkpoints/a-checkpoint.json"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).write_bytes(b"\0\5\26\7")
    (traces / "mpi_profile.1.0.json").write_text('{"format": "tandem mpi profile 1"}')
    assert [record.error for record in records.read_all(tmp_path)] == ["a.json", "b.json", "polaris/c.json"]
    assert [record.error for record in records.read_all(tmp_path / "b.json")] == ["b.json"]
    # A file that is named explicitly is read.
    with refused("has schema None"):
        records.read_all(traces / "mpi_profile.1.0.json")
    with refused("nowhere does not exist; give a record or a folder of records"):
        records.read_all(tmp_path / "nowhere")


def keys_of(kind):
    return [field.name for field in dataclasses.fields(kind)]


def is_kept(before, after):
    """Whether every key of a dict, and of the dicts in it, has the same value in another."""
    if isinstance(before, dict):
        return all(key in after and is_kept(value, after[key]) for key, value in before.items())
    return before == after


@pytest.mark.parametrize(("num_ranks", "cores_by_rank"), [(1, [[3]]), (3, [[3], None, None])])
def test_an_older_record_knows_the_cores_of_rank_0(num_ranks, cores_by_rank):
    record = made(num_ranks=num_ranks)
    environment = {key: value for key, value in record["environment"].items() if key != "cores_by_rank"}
    environment = records.lifted(record | {"environment": environment | {"cores_of_rank_0": [3]}})["environment"]
    assert environment == record["environment"] | {"cores_by_rank": cores_by_rank}


def test_an_older_environment_does_not_tell_the_device_and_a_record_of_today_stays_as_it_is():
    record = made(exact=False, data_parallel_degree=1, num_ranks=2)
    assert records.lifted(record) == record
    later = ("cores_by_rank", "quota_cores", "numa_nodes_of_rank_0", "device", "framework_has_cuda", "gpu", "ignored_variables")
    environment = {key: value for key, value in record["environment"].items() if key not in later}
    assert records.lifted(record | {"environment": environment})["environment"] == record["environment"] | dict.fromkeys(later)


@pytest.mark.parametrize("broken", [{}, {"settings": 5}, {"environment": None}, {"step_breakdown": [1]}])
def test_what_is_no_record_stays_invalid(broken):
    assert is_kept(broken, records.lifted(broken))
    assert not VALIDATOR.is_valid(records.lifted(broken))


RECORDED = (
    "OMP_NUM_THREADS", "HOROVOD_FUSION_THRESHOLD", "MPIR_CVAR_POLLS_BEFORE_YIELD", "MALLOC_TOP_PAD_", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD",
    "HDF5_USE_FILE_LOCKING",
)  # fmt: skip
SECRET = (
    "AWS_SECRET_ACCESS_KEY", "HOME", "USER", "SLURM_JOB_ACCOUNT", "MY_OMP_NUM_THREADS", "OMP_lower", "LD_PRELOAD_KEY", "TANDEM_LAUNCH",
)  # fmt: skip


def test_only_variables_that_affect_a_run_are_recorded(monkeypatch):
    # With LD_PRELOAD set, git would print that it cannot load the library.
    monkeypatch.setattr(records, "_git", lambda *arguments: None)
    for name in (*RECORDED, *SECRET):
        monkeypatch.setenv(name, f"value of {name}")
    environment = records.environment()
    assert [name for name in RECORDED if environment["variables"][name] != f"value of {name}"] == []
    assert [name for name in SECRET if f"value of {name}" in json.dumps(environment)] == []


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
    monkeypatch.setattr(records.socket, "gethostname", lambda: "node17.cluster.example")
    for variable, value in (("SLURM_CLUSTER_NAME", cluster), ("PBS_JOBID", pbs_job)):
        monkeypatch.delenv(variable, raising=False)
        if value is not None:
            monkeypatch.setenv(variable, value)
    assert records.machine_name(Settings(machine=machine)) == name


def test_a_folder_that_cannot_be_made_is_refused_and_one_that_can_is_made_when_asked_for_and_left_empty(tmp_path):
    (tmp_path / "file").write_text("mine")
    for below in ("", "here", "further/down"):
        path = tmp_path / "file" / below
        with refused(str(path), "give another folder with --results"):
            records.make_folder(path)
        with refused(f"cannot write records to {path} ({tmp_path / 'file'} is not a folder); give another folder with --results"):
            records.expect_writable(path)
    records.expect_writable(tmp_path / "results" / "here")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"
    for _ in range(2):
        records.make_folder(tmp_path / "results" / "here")
        assert list((tmp_path / "results" / "here").iterdir()) == []
