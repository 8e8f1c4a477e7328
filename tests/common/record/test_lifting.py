"""Older records have every key of the present definition once they are lifted, and keep what they had."""

import dataclasses
import json
from pathlib import Path

import pytest

from common.config import Settings
from common.record import definition, lifting, records
from common.record.lifting import lifted
from launch.report.collect import collect
from tests.support.made_records import VALIDATOR, made

# One record of each kind, as its run wrote it. The rewritten ones are in results/reference.
OLDER = sorted((Path(__file__).parent / "older_records").iterdir())
LATER_ENVIRONMENT = {"numa_nodes_of_rank_0": None, "device": None, "framework_has_cuda": None, "gpu": None}


def is_kept(before, after):
    """Whether every key of a dict, and of the dicts in it, has the same value in another."""
    if isinstance(before, dict):
        return all(key in after and is_kept(value, after[key]) for key, value in before.items())
    return before == after


def keys_of(kind):
    return [field.name for field in dataclasses.fields(kind)]


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.stem)
def test_an_older_record_gets_every_key_and_keeps_its_values(path):
    older = json.loads(path.read_text())
    record = lifted(older)
    assert not VALIDATOR.is_valid(older)
    VALIDATOR.validate(record)
    assert is_kept(older, record)
    assert list(record) == keys_of(definition.Record)
    assert list(record["settings"]) == keys_of(Settings)
    assert list(record["environment"]) == keys_of(definition.Environment)
    if record["step_breakdown"]:
        assert list(record["step_breakdown"]) == keys_of(definition.StepBreakdown)
    assert records.as_json(records.read(path)) == record
    assert [records.as_json(collected) for collected in collect([path])[0]] == [record]
    (committed,) = (records.ROOT / "results" / "reference").glob(f"*/{path.name}")
    assert lifted(json.loads(committed.read_text())) == record


def test_an_older_backend_was_exact_and_had_the_model_in_every_rank():
    record = made(num_ranks=4)
    older = {key: value for key, value in record.items() if key not in ("exact", "data_parallel_degree", "reading")}
    assert lifted(older) == record | {"exact": True, "data_parallel_degree": 4, "reading": None}


def test_an_older_environment_does_not_tell_the_device_and_a_record_of_today_stays_as_it_is():
    record = made(exact=False, data_parallel_degree=1, num_ranks=2)
    assert lifted(record) == record
    environment = {key: value for key, value in record["environment"].items() if key not in LATER_ENVIRONMENT}
    assert lifted(record | {"environment": environment})["environment"] == record["environment"] | LATER_ENVIRONMENT


@pytest.mark.parametrize("broken", [{}, {"settings": 5}, {"environment": None}, {"step_breakdown": [1]}])
def test_what_is_no_record_stays_invalid(broken):
    assert is_kept(broken, lifted(broken))
    assert not VALIDATOR.is_valid(lifted(broken))


def test_a_later_setting_of_the_workload_has_the_value_that_digests_leave_out(monkeypatch):
    monkeypatch.setattr(lifting, "LATER", (("batch_size", 7),))
    record = made()
    older = {name: value for name, value in record["settings"].items() if name != "batch_size"}
    assert lifted(record | {"settings": older})["settings"]["batch_size"] == 7
