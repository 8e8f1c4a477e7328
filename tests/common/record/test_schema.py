"""The definition of the record, its schema, its documentation and the records themselves agree."""

import dataclasses
import functools
import json
import re
import subprocess
import sys

import pytest

from common import workloads
from common.bounds import Bounds
from common.command_line import declarations
from common.config import Settings
from common.ranks.launcher_variables import Ranks
from common.record import definition, environment, files, schema
from common.record.definition import Record
from tests.support.made_records import made, step_breakdown, valid
from tests.support.running import ROOT

RESULTS = ROOT / "results"
SCHEMA = json.loads((RESULTS / "schema.json").read_text())
REGENERATE = "run python -m common.record.schema"
GPU = {"model": "a GPU", "pci_bus_id": "0000:07:00.0", "driver": "580.65", "cuda": "13.0", "cudnn": None, "nccl": "2.27.3"}


def is_record(values):
    try:
        return bool(files.parsed(json.dumps(values)))
    except ValueError:
        return False


def new_record():
    launch = {"launcher": "alone", "command": "python -m frameworks.single", "launched_at": None}
    settings = workloads.resolve(Settings(machine="here"), 1)
    return files.as_json(definition.new("single", settings, Ranks(), workloads.batch_plan(settings, 1), launch, environment.describe()))


def test_the_committed_schema_and_list_of_keys_are_the_generated_ones():
    readme = (RESULTS / "README.md").read_text()
    assert (RESULTS / "schema.json").read_text() == schema.schema_text(), REGENERATE
    assert readme == schema.with_keys(readme), REGENERATE


def test_definition_record_schema_and_documentation_have_the_same_keys_in_the_same_order():
    documented = re.findall(r"^- `(\w+)`: ", (RESULTS / "README.md").read_text(), re.MULTILINE)
    defined = [field.name for field in dataclasses.fields(Record)]
    assert defined == list(new_record()) == list(SCHEMA["properties"]) == SCHEMA["required"] == documented
    valid(new_record())


def test_every_key_has_a_description_and_may_not_be_missing():
    parts = [SCHEMA["$defs"][part] for part in ("StepBreakdown", "Timeline", "MpiProfile", "Environment")]
    for kind in (SCHEMA, *parts):
        assert kind["required"] == list(kind["properties"])
        assert [key for key, value in kind["properties"].items() if len(value.get("description", "")) < len("Host name.")] == []


def test_the_schema_of_the_settings_has_the_bounds_of_the_command_line():
    settings = SCHEMA["$defs"]["Settings"]
    assert settings["required"] == list(settings["properties"]) == [field.name for field in dataclasses.fields(Settings)]
    for name, declared in declarations(Settings).items():
        kinds = [settings["properties"][name], *settings["properties"][name].get("anyOf", ())]
        for bounds in declared:
            if isinstance(bounds, Bounds):
                lowest, highest = bounds.above if bounds.at_least is None else bounds.at_least, bounds.at_most or bounds.below
                assert any(kind.get("minimum", kind.get("exclusiveMinimum")) == lowest for kind in kinds), name
                assert any(kind.get("maximum", kind.get("exclusiveMaximum")) == highest for kind in kinds), name


def test_a_training_process_does_not_import_pydantic():
    """Imports are on the clock of every run."""
    command = "import sys; from common.training import program; sys.exit('pydantic' in sys.modules)"
    subprocess.run([sys.executable, "-c", command], cwd=ROOT, timeout=60, check=True)


@pytest.mark.parametrize(
    "change",
    [
        {"status": "ok"},
        {"status": "failed"},
        {"reached": True},
        {"time_to_solution_seconds": 3.0},
        {"schema": 0},
        {"backend": None},
        {"started_at": "2026-13-01T00:00:00Z"},
        {"losses": [1.0, "2"]},
        {"parameter_digests": ["abc"]},
        {"settings": {}},
        {"step_breakdown": step_breakdown() | {"operations": {"all_reduce": {"num_calls": 1}}}},
        {"timeline": {"trace": None}},
        {"environment": made()["environment"] | {"device": "auto"}},
    ],
)
def test_the_schema_refuses(change):
    assert not is_record(new_record() | change)


@pytest.mark.parametrize("part", [(), ("step_breakdown",), ("settings",), ("environment", "gpu")])
def test_keys_of_other_versions_are_left_out(part):
    record = made(step_breakdown=step_breakdown(num_ranks=1), environment=made()["environment"] | {"gpu": GPU})
    expected = files.parsed(json.dumps(record))
    functools.reduce(dict.__getitem__, part, record)["surprise"] = 1
    assert files.parsed(json.dumps(record)) == expected


@pytest.mark.parametrize(
    "key", ["workload_digest", "num_nodes", "import_seconds", "init_seconds", "peak_memory_bytes", "in_sync", "reached", "accuracy"]
)
def test_a_completed_run_knows(key):
    assert is_record(made())
    assert not is_record(made() | {key: None})


@pytest.mark.parametrize("lacking", [{"time_to_solution_seconds": None}, {"accuracy": None}, {"samples_per_second": None}, {"losses": []}])
@pytest.mark.parametrize(("resumed", "is_valid"), [({}, False), ({"resumed_after_epochs": 0}, False), ({"resumed_after_epochs": 2}, True)])
def test_only_a_resumed_run_may_lack_the_results_of_earlier_epochs(lacking, resumed, is_valid):
    record = made() | resumed | ({"time_to_solution_seconds": None} if is_valid else {})
    assert is_record(record | lacking) == is_valid
    assert not is_record(made() | {"resumed_after_epochs": 2}), "it has a time to solution"


def test_without_a_target_nothing_is_reached():
    throughput = made() | {"target": None, "reached": None, "accuracy": None, "time_to_solution_seconds": None}
    assert is_record(throughput)
    assert not is_record(throughput | {"reached": False})
    assert not is_record(throughput | {"accuracy": 0.5})


def test_the_committed_records_follow_the_schema_and_trained_the_same_thing(committed):
    names = [path.name for path in (RESULTS / "reference").iterdir() if path.is_dir()]
    runs = [(name, record) for name in names for record in committed(name)]
    for _, record in runs:
        assert record.status == "ok"
        assert record.reached or not record.settings.stop_at_target
        assert record.oversubscribed is (record.num_ranks > record.environment.num_cores)
    digests = {(name, record.workload, record.scaling, record.workload_digest) for name, record in runs}
    trained = [("cnn", "strong"), ("cnn", "weak"), ("transformer", "strong"), ("transformer", "weak")]
    assert sorted(digest[1:3] for digest in digests if digest[0] == "two-cores") == trained
    assert len(digests) == len({digest[:3] for digest in digests})
