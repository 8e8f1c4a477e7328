"""The step breakdown: its parts add up to the step, and steps without communication do not communicate."""

import contextlib
import json
import math
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from common import command_line
from common.backends import name_of
from common.config import Settings
from common.declarations import declared
from common.ranks.launcher_variables import Ranks
from common.trainer import Batch, Communication, ProfiledCommunication, Schedule
from common.training import step_breakdown
from common.training.step_breakdown import Block
from frameworks.shared.pytorch import profiler
from frameworks.shared.pytorch.distributed_data_parallel import communication_of_ddp
from frameworks.shared.pytorch.profiler import collectives, covered
from tests.support.backends import SERVED
from tests.support.contract import GRADIENT_BYTES, ROWS
from tests.support.running import train
from tests.support.step_breakdown_run import NUM_STEPS


@pytest.mark.parametrize(
    ("with_communication", "without", "parts"),
    [
        ((1.0, 0.1), (0.7, 0.1), (0.1, 0.6, 0.3)),
        ((1.0, 0.0), (1.0, 0.0), (0.0, 1.0, 0.0)),
        # Data that took longer by chance is not communication.
        ((1.0, 0.3), (0.8, 0.1), (0.3, 0.7, 0.0)),
        # Noise is reported as measured.
        ((0.9, 0.0), (1.0, 0.0), (0.0, 1.0, -0.1)),
    ],
)
def test_the_parts_of_a_step_add_up_to_it(with_communication, without, parts):
    step, *seconds = step_breakdown.parts_of(Block(*with_communication), Block(*without)).values()
    assert step == with_communication[0]
    assert seconds == pytest.approx(parts)
    assert sum(seconds) == pytest.approx(step)


def test_the_steps_of_a_block_are_counted_from_the_whole_epoch_since_a_gpu_queues_them(monkeypatch):
    monkeypatch.setattr(step_breakdown, "measure", lambda trainer, batches, num_steps, end_turn: (num_steps, end_turn))
    alone = SimpleNamespace(ranks=Ranks(), sum=lambda values: values)
    # Three steps of 20 ms, of which the last one waits for all.
    record = SimpleNamespace(step_seconds=[0.001, 0.001, 0.058])
    step_breakdown.add_to_record(alone, None, record, end_turn := object())
    assert record.step_breakdown == (step_breakdown.BLOCK_SECONDS / 0.02, end_turn)


@pytest.mark.parametrize(
    ("operations", "num_ranks", "bus_bytes"),
    [
        ({"all_reduce": (2, 100)}, 2, 100),
        ({"all_reduce": (2, 100)}, 4, 150),
        # Each of four ranks sends its 25 of 100 bytes to three others; 100 bytes are reduced and scattered over four.
        ({"all_gather": (1, 25)}, 4, 75),
        ({"reduce_scatter": (1, 100)}, 4, 75),
        ({"reduce_scatter": (1, 100), "all_gather": (1, 25)}, 4, 150),
        ({"broadcast": (1, 100)}, 4, 100),
        ({"all_reduce": (2, 100)}, 1, None),
        ({}, 4, None),
    ],
)
def test_bus_bandwidth_is_what_the_busiest_link_carries(operations, num_ranks, bus_bytes):
    assert step_breakdown.bandwidth(operations, 0.5, num_ranks) == (None if bus_bytes is None else pytest.approx(2 * bus_bytes))
    for no_time in (0.0, math.nan):
        assert step_breakdown.bandwidth(operations, no_time, num_ranks) is None


@pytest.mark.parametrize(
    ("spans", "length"), [([], 0), ([(0, 2), (5, 6)], 3), ([(5, 6), (0, 2)], 3), ([(0, 4), (1, 2), (3, 6)], 6), ([(1, 2), (1, 2)], 1)]
)
def test_collectives_at_the_same_time_count_once(spans, length):
    assert covered(spans) == length


@pytest.mark.parametrize("of_trace", [False, True])
def test_a_profile_waits_for_the_thread_that_still_ends_its_last_collective(of_trace, tmp_path):
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    ended = threading.Event()

    def end(_):
        # As if the thread had no core, after the collective and before the profiler hears of its end.
        time.sleep(0.05)
        ended.set()

    def train():
        future = dist.all_reduce(torch.zeros(2**20), async_op=True).get_future()
        future.add_done_callback(end)
        future.wait()

    try:
        if of_trace:
            with profiler.profiled(tmp_path, 0, Schedule(0, 0, 1)) as step:
                train()
                step()
                assert ended.is_set()
        else:
            _, names = collectives(train)
            assert ended.is_set()
            assert names == ["gloo:all_reduce"]
    finally:
        ended.wait()
        dist.destroy_process_group()


def test_the_broadcasts_of_running_statistics_by_ddp_are_among_its_operations():
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        model = DistributedDataParallel(nn.BatchNorm1d(4))

        def train(num_steps=NUM_STEPS):
            for _ in range(num_steps):
                model(torch.randn(2, 4)).sum().backward()

        # DDP broadcasts the order of its buckets once.
        train(2)
        profile = communication_of_ddp(model).profiled(train)
    finally:
        dist.destroy_process_group()
    # Means and variances in one call, and the number of batches in another.
    assert profile.operations["broadcast"] == (2 * NUM_STEPS, NUM_STEPS * (2 * 4 * 4 + 8))
    assert profile.operations["all_reduce"] == (NUM_STEPS, NUM_STEPS * 2 * 4 * 4)


def test_the_first_batches_are_taken_and_the_wait_for_them_is_measured():
    batches = [Batch(number, number, number, 0.01) for number in range(3)]
    first = step_breakdown.First(batches, 2)
    assert (len(first), list(first), first.data_seconds > 0) == (2, [Batch(0, 0, 0, 0.0), Batch(1, 1, 1, 0.0)], True)
    assert [batch.inputs for batch in step_breakdown.First(batches, 7)] == [0, 1, 2, 0, 1, 2, 0]


class MadeTrainer:
    """A trainer, alone or of two ranks, that notes of each block of four steps, after its first, whether it communicates.

    In its profile a step has 1 s of communication, in that of the other rank `other_seconds`.
    """

    def __init__(self, other_seconds=None):
        self.ranks, self.other_seconds = Ranks(size=1 if other_seconds is None else 2), other_seconds
        self.communicates, self.blocks = True, []

    def train_epoch(self, batches, observe):
        for _ in batches:
            observe(1.0)
        if len(batches) == 5:
            self.blocks.append(self.communicates)

    def sum(self, values):
        return values + np.array([0, self.other_seconds]) if self.ranks.size == len(values) == 2 else values

    def communication(self):
        profile = ProfiledCommunication(1.0, {"all_reduce": (1, 100)})
        return Communication(self.without, lambda train: profile)

    @contextlib.contextmanager
    def without(self):
        self.communicates = False
        yield
        self.communicates = True


@pytest.fixture
def measure(monkeypatch):
    """A function that measures the step breakdown of a trainer."""
    # Steps that only compile or are profiled are in no block of four.
    monkeypatch.setattr(step_breakdown, "NUM_FEW", 1)
    return lambda trainer, **more: step_breakdown.measure(trainer, [Batch(0, 0, 0)] * 4, 4, **more)


def test_a_drift_affects_blocks_with_and_without_communication_alike(measure):
    trainer = MadeTrainer()
    measure(trainer)
    communicating = np.array(trainer.blocks)
    places, places_without = np.flatnonzero(communicating), np.flatnonzero(~communicating)
    assert len(places) == len(places_without) >= 3
    assert sum(places) == sum(places_without)


def test_the_runs_side_by_side_have_a_turn_before_each_block(measure):
    trainer, num_blocks_before = MadeTrainer(), []
    measure(trainer, end_turn=lambda: num_blocks_before.append(len(trainer.blocks)))
    assert num_blocks_before == list(range(len(trainer.blocks)))


@pytest.mark.parametrize(("other_seconds", "mean"), [(3.0, 2.0), (math.nan, 1.0)])
def test_bandwidth_is_of_the_mean_time_of_the_ranks_that_were_profiled(other_seconds, mean, measure):
    assert measure(MadeTrainer(other_seconds)).bus_bytes_per_second == pytest.approx(100 / mean)


@pytest.mark.matrix
def test_a_run_that_is_killed_in_its_step_breakdown_keeps_what_it_measured(data, tmp_path):
    arguments = (*data[True]["cnn"], "--batch-size", 8, "--epochs", 1, "--step-breakdown")
    status, record, _ = train("single", 1, tmp_path, *arguments, fault="killed_in_its_step_breakdown")
    assert status != 0
    assert (record["status"], len(record["losses"]), record["step_breakdown"]) == ("started", 3, None)


def measured(trained, backend, breakdown):
    """What each of two ranks measured (tests/support/step_breakdown_run.py) in a Breakdown of a backend."""
    record, _ = trained(backend, 2, breakdown.run)
    assert record["status"] == "ok", record["error"]
    settings = record["settings"]
    return [json.loads(Path(settings["results"], f"{settings['run_id']}-{rank}.json").read_text()) for rank in range(2)]


def runs_of(backend, breakdown):
    return [(backend, 2, breakdown.run)]


def identify(backend, breakdown):
    """The id of a test: the backend and the words of the Breakdown."""
    words = [backend, breakdown.workload, *(str(word).strip("-") for word in breakdown.arguments), *breakdown.shares]
    return "-".join(words)


@pytest.mark.matrix
@pytest.mark.runs(needed=runs_of)
@pytest.mark.parametrize(("backend", "breakdown"), [(name, breakdown) for name in SERVED for breakdown in ROWS[name].breakdowns])
def test_a_worker_sends_gradients_and_receives_parameters(backend, breakdown, trained):
    worker, server = measured(trained, backend, breakdown)
    measurement = worker["step_breakdown"]
    expected = {"num_calls": 1, "num_bytes": GRADIENT_BYTES["cnn"]}
    assert measurement["operations"] == {"send": expected, "receive": expected}
    assert measurement["communication_seconds"][0] > 0
    assert math.isnan(measurement["communication_seconds"][1])
    profile, without = worker["with_communication"], worker["without_communication"]
    assert profile["seconds"] > without["seconds"] == 0
    assert profile["operations"]["send"] == [NUM_STEPS, NUM_STEPS * GRADIENT_BYTES["cnn"]]
    assert worker["losses"][0] == pytest.approx(worker["losses"][1], rel=1e-5)
    # Without an exchange a worker has no optimizer, so that its parameters stay as they are.
    assert worker["unchanged"]
    assert server["unchanged"]
    assert worker["in_sync"]


BREAKDOWNS = [(name, breakdown) for name, row in ROWS.items() if name not in SERVED for breakdown in row.breakdowns]


@pytest.mark.matrix
@pytest.mark.runs(needed=runs_of)
@pytest.mark.parametrize(("backend", "breakdown"), [pytest.param(*pair, id=identify(*pair)) for pair in BREAKDOWNS])
def test_each_backend_has_a_step_breakdown(backend, breakdown, trained):
    arguments, gradient_bytes, declaration = breakdown.arguments, GRADIENT_BYTES[breakdown.workload], declared()[backend]
    by_rank = measured(trained, backend, breakdown)
    operations = {name: share * gradient_bytes for name, share in breakdown.shares.items()}
    for rank, of_rank in enumerate(by_rank):
        measurement = of_rank["step_breakdown"]
        assert measurement["num_steps"] == NUM_STEPS
        parts = [measurement[name][rank] for name in ("data_wait_seconds", "compute_seconds", "communication_exposed_seconds")]
        assert sum(parts) == pytest.approx(measurement["step_seconds"][rank])
        assert min(parts[:2]) > 0
        assert of_rank["unchanged"] is True
        with_communication, without = of_rank["losses"]
        # A rank that receives nothing has a part of the model, and a stage computes on what it received last.
        assert declaration.model_parallel or without == pytest.approx(with_communication, rel=1e-5)
        assert len(without) == NUM_STEPS
    # Horovod's timeline is rank 0's.
    measurement = by_rank[0]["step_breakdown"]
    assert measurement["communication_seconds"][0] > 0
    assert measurement["bus_bytes_per_second"] > 0
    num_bytes = {name: operation["num_bytes"] for name, operation in measurement["operations"].items()}
    assert num_bytes == pytest.approx(operations, abs=16)
    profile, without = by_rank[0]["with_communication"], by_rank[0]["without_communication"]
    assert profile["seconds"] > without["seconds"] == 0
    expected = NUM_STEPS * sum(operations.values())
    assert sum(sent for _, sent in profile["operations"].values()) == pytest.approx(expected, abs=16 * NUM_STEPS)
    variant = name_of(backend, command_line.parse(Settings, "", "", list(map(str, arguments)))).partition("@")[2]
    one_model = ROWS[backend].one_model
    assert by_rank[0]["in_sync"] == (one_model if isinstance(one_model, bool) else variant in one_model)
