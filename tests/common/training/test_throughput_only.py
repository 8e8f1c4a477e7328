"""A workload without a target is trained and measured, but not evaluated, and has no time to solution."""

import json

import jsonschema
import numpy as np
import pytest

from common import workloads
from common.config import Settings
from common.data import datasets
from common.model.families import EncoderDecoder
from common.process.ranks import Ranks
from common.process.watchdog import Watchdog
from common.record import records
from common.training import event_log, loop
from launch.report import summary
from launch.run.display import outcome
from tests.support.made_records import typed
from tests.support.running import ROOT
from tests.support.small_models import RESNET

single = pytest.importorskip("frameworks.single")

SMALL = EncoderDecoder(width=16, num_heads=2, num_layers=1, hidden=32, source_length=1, target_length=4)


@pytest.fixture
def train(monkeypatch):
    """A function that returns the record of one epoch of a small encoder-decoder, or of a small ResNet."""
    for name, model in (("transformer-alcf", SMALL), ("resnet50", RESNET)):
        monkeypatch.setitem(workloads.WORKLOADS, name, workloads.WORKLOADS[name]._replace(model=model))
    monkeypatch.setattr(datasets, "NUM_RANDOM_SAMPLES", 96)
    monkeypatch.setattr(datasets, "NUM_RANDOM_IMAGES", 64)
    launch = {"launcher": "alone", "command": "python", "launched_at": None}

    def once(trainer_class, workload="transformer-alcf"):
        requested = Settings(workload=workload, machine="here")
        settings = workloads.resolve(requested, 1)
        record = records.new("single", settings, Ranks(), launch, records.environment())
        record.oversubscribed = False
        trainer = trainer_class(settings)
        turns = loop.prepare(trainer, settings, record)

        def digest(data):
            return workloads.digest(requested, data.digest)

        loop.train(trainer, settings, datasets.loader(settings), record, digest, Watchdog(0, None), turns, event_log.begin(None))
        record.status, record.import_seconds, record.init_seconds = "ok", 1.0, 1.0
        return record

    return once


def test_it_has_a_throughput_and_losses_and_no_time_to_solution_in_its_record_and_in_the_report(train):
    record = train(single.Trainer)
    jsonschema.validate(records.as_json(record), json.loads((ROOT / "results" / "schema.json").read_text()))
    assert (record.target, record.reached, record.time_to_solution_seconds, record.accuracy) == (None,) * 4
    assert (record.accuracies, record.eval_losses, record.eval_seconds) == ([], [], [])
    assert len(record.losses) == 3
    assert record.samples_per_second > 0
    (typed_record,) = typed([records.as_json(record)])
    assert outcome(typed_record) == f"{record.samples_per_second:.1f} samples/s"
    answer = summary.answer([typed_record])
    table = answer.sections[0].tables[0]
    shown = dict(zip([column.name for column in table.columns], table.texts[0], strict=True))
    assert (shown["time to solution (s)"], shown["reached"], shown["accuracy"]) == ("-", "-", "-")
    assert float(shown["samples/s"]) == round(record.samples_per_second)
    assert "has no target; it is for throughput alone" in answer.headline[0]


def test_clocks_start_together_when_the_energys_counters_are_open_and_before_the_data_is_touched(train, monkeypatch):
    order = []
    begin, loader = loop.energy.begin, datasets.loader

    class Meeting(single.Trainer):
        def sum(self, values):
            order.append("meet")
            return super().sum(values)

    monkeypatch.setattr(loop.energy, "begin", lambda *arguments: order.append("open") or begin(*arguments))
    monkeypatch.setattr(datasets, "loader", lambda settings: lambda _: order.append("load") or loader(settings)())
    train(Meeting)
    opened = order.index("open")
    assert order[opened : opened + 3] == ["open", "meet", "load"]


def test_pixels_are_bytes_up_to_the_trainer_also_while_it_warms_up(train):
    arrays = []

    class Looking(single.Trainer):
        def train_epoch(self, batches, observe):
            batches = list(batches)
            arrays.extend((batch.inputs.dtype, batch.inputs.shape, batch.targets.dtype) for batch in batches)
            super().train_epoch(batches, observe)

    assert len(train(Looking, "resnet50").losses) == 2
    assert arrays == [(np.uint8, (32, 48, 48, 3), np.int64)] * (loop.NUM_WARMUP_STEPS + 2)
