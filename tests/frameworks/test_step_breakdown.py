"""The step breakdown: its parts add up to the step, and steps without communication do not communicate."""

import contextlib
import json
import math
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest

from common import command_line
from common.backends import declared, name_of
from common.config import Settings
from common.process.ranks import Ranks
from common.trainer import Batch, Communication, ProfiledCommunication
from common.training import step_breakdown
from frameworks.shared.pytorch.process_group import covered
from tests.support import small_data
from tests.support.contract import GRADIENT_BYTES, ROWS
from tests.support.running import BIN, ROOT, environ, train
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
    step, *found = step_breakdown.parts_of(with_communication, without).values()
    assert step == with_communication[0]
    assert found == pytest.approx(parts)
    assert sum(found) == pytest.approx(step)


def test_the_steps_of_a_block_are_counted_from_the_whole_epoch_since_a_gpu_queues_them(monkeypatch):
    monkeypatch.setattr(step_breakdown, "measure", lambda trainer, batches, num_steps, size: num_steps)
    alone = SimpleNamespace(ranks=Ranks(), sum=lambda values: values)
    # Three steps of 20 ms, of which the last one waits for all.
    record = SimpleNamespace(step_seconds=[0.001, 0.001, 0.058])
    step_breakdown.add_to_record(Settings(), alone, None, record)
    assert record.step_breakdown == step_breakdown.BLOCK_SECONDS / 0.02


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


@pytest.mark.parametrize("seconds", [0.0, math.nan])
def test_no_time_is_no_bandwidth(seconds):
    assert step_breakdown.bandwidth({"all_reduce": (1, 100)}, seconds, 2) is None


@pytest.mark.parametrize(
    ("spans", "length"), [([], 0), ([(0, 2), (5, 6)], 3), ([(5, 6), (0, 2)], 3), ([(0, 4), (1, 2), (3, 6)], 6), ([(1, 2), (1, 2)], 1)]
)
def test_collectives_at_the_same_time_count_once(spans, length):
    assert covered(spans) == length


def test_the_first_batches_are_taken_and_the_wait_for_them_is_measured():
    batches = [Batch(number, number, number, 0.01) for number in range(3)]
    first = step_breakdown.First(batches, 2)
    assert (len(first), list(first), first.data_seconds > 0) == (2, [Batch(0, 0, 0, 0.0), Batch(1, 1, 1, 0.0)], True)
    assert [batch.inputs for batch in step_breakdown.First(batches, 7)] == [0, 1, 2, 0, 1, 2, 0]


class Alternating:
    """A trainer that notes of each block of four steps, after its first, whether it communicates."""

    ranks = Ranks()

    def __init__(self):
        self.communicates, self.blocks = True, []

    def train_epoch(self, batches, observe):
        for _ in batches:
            observe(1.0)
        if len(batches) == 5:
            self.blocks.append(self.communicates)

    def sum(self, values):
        return values

    def communication(self):
        return Communication(self.without, lambda train: ProfiledCommunication(0.0, {}, {}), lambda _: lambda: None)

    @contextlib.contextmanager
    def without(self):
        self.communicates = False
        yield
        self.communicates = True


def test_a_drift_affects_blocks_with_and_without_communication_alike(monkeypatch):
    # Steps that only compile or are profiled are in no such block.
    monkeypatch.setattr(step_breakdown, "NUM_FEW", 1)
    trainer = Alternating()
    step_breakdown.measure(trainer, [Batch(0, 0, 0)] * 4, 4, 8)
    places = {communicates: [place for place, one in enumerate(trainer.blocks) if one is communicates] for communicates in (True, False)}
    assert len(places[True]) == len(places[False]) >= 3
    assert sum(places[True]) == sum(places[False])


class TwoRanks(Alternating):
    """The first of two ranks, in whose profile a step has 1 s of communication; the other's has `other_seconds`."""

    ranks = Ranks(size=2)

    def __init__(self, other_seconds):
        super().__init__()
        self.other_seconds = other_seconds

    def sum(self, values):
        return values + np.array([0, self.other_seconds]) if len(values) == 2 else values

    def communication(self):
        profile = ProfiledCommunication(1.0, {"all_reduce": (1, 100)}, {})
        return super().communication()._replace(profiled=lambda train: profile)


@pytest.mark.parametrize(("other_seconds", "mean"), [(3.0, 2.0), (math.nan, 1.0)])
def test_bandwidth_is_of_the_mean_time_of_the_ranks_that_were_profiled(other_seconds, mean, monkeypatch):
    monkeypatch.setattr(step_breakdown, "NUM_FEW", 1)
    found = step_breakdown.measure(TwoRanks(other_seconds), [Batch(0, 0, 0)] * 4, 4, 8)
    assert found["bus_bytes_per_second"] == pytest.approx(100 / mean)


@pytest.mark.parametrize(
    ("times", "starts"),
    [
        # Steps end at 10, 20, 30 and 40 s. The first one's beginning is not known.
        ([9.0, 12.0, 14.0, 22.5, 24.0, 32.0, 35.0], [2.0, 4.0]),
        # Two of three steps have one; one has a flag beside.
        ([13.0, 24.0, 36.0, 38.0], [3.5]),
        ([14.0, 12.0, 22.5, 24.0, 32.0, 35.0], [2.0, 4.0]),
        ([22.0, 25.0], [2.0, 5.0]),
        ([5.0, 45.0], None),
    ],
)
def test_the_starts_of_exchanges_are_those_in_a_typical_step(times, starts):
    found = step_breakdown.starts_in_step({"all_reduce": times}, [10.0, 20.0, 30.0, 40.0])
    assert found == ({"all_reduce": starts} if starts else {})
    assert step_breakdown.starts_in_step({"all_reduce": times}, [10.0]) == {}


def test_plain_all_reduces_are_measured_at_several_sizes(monkeypatch):
    monkeypatch.setattr(step_breakdown, "NUM_FEW", 1)
    sizes = []

    class Reducing(TwoRanks):
        def communication(self):
            return super().communication()._replace(all_reduce=lambda size: lambda: sizes.append(size))

    found = step_breakdown.measure(Reducing(1.0), [Batch(0, 0, 0)] * 4, 4, 2**17)
    assert [size for size, _ in found["all_reduce_seconds_by_size"]] == [2**10, 2**15, 2**17, 2**20]
    assert sizes == sorted([2**10, 2**15, 2**17, 2**20] * step_breakdown.NUM_ALL_REDUCES)
    assert found["plain_bus_bytes_per_second"] == pytest.approx(2**17 / found["all_reduce_seconds_by_size"][2][1])
    assert step_breakdown.measure(Alternating(), [Batch(0, 0, 0)] * 4, 4, 2**17)["all_reduce_seconds_by_size"] is None


@pytest.mark.matrix
def test_a_run_that_is_killed_in_its_step_breakdown_keeps_what_it_measured(tmp_path):
    data = small_data.write(tmp_path / "data", 20)["cnn"]
    arguments = (*data, "--batch-size", 8, "--epochs", 1, "--step-breakdown")
    status, record, _ = train("single", 1, tmp_path, *map(str, arguments), fault="killed_in_its_step_breakdown")
    assert (status != 0, record["status"], len(record["losses"]), record["step_breakdown"]) == (True, "started", 2, None)


def measured(folder, backend, *arguments):
    """The output of tests/support/step_breakdown_run.py on each of two ranks."""
    command = [
        BIN / "mpiexec",
        "-n",
        2,
        BIN / "python",
        "-m",
        "tests.support.step_breakdown_run",
        folder,
        backend,
        "--batch-size",
        16,
        *arguments,
    ]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, env=environ(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def words(parameter):
    """A parameter's name, whatever the number of those before it."""
    return parameter if isinstance(parameter, str) else "-".join(str(word).strip("-") for word in parameter)


@pytest.mark.matrix
@pytest.mark.long
def test_a_worker_sends_gradients_and_receives_parameters(tmp_path):
    worker, server = measured(tmp_path, "parameter_server", "--workload", "cnn")
    breakdown = worker["step_breakdown"]
    expected = {"num_calls": 1, "num_bytes": GRADIENT_BYTES["cnn"]}
    assert breakdown["operations"] == {"send": expected, "receive": expected}
    assert breakdown["communication_seconds"][0] > 0
    assert math.isnan(breakdown["communication_seconds"][1])
    profile, without = worker["with_communication"], worker["without_communication"]
    assert (profile["seconds"] > 0, without["seconds"]) == (True, 0)
    assert profile["operations"]["send"] == [NUM_STEPS, NUM_STEPS * GRADIENT_BYTES["cnn"]]
    assert worker["losses"][0] == pytest.approx(worker["losses"][1], rel=1e-5)
    # Without an exchange a worker has no optimizer, so that its parameters stay as they are.
    assert (worker["unchanged"], server["unchanged"], worker["in_sync"]) == (True, True, True)


@pytest.mark.matrix
@pytest.mark.long
@pytest.mark.parametrize(
    ("backend", "workload", "arguments", "shares"),
    [(name, *one) for name, row in ROWS.items() for one in row.breakdowns],
    ids=words,
)
def test_each_backend_has_a_step_breakdown(backend, workload, arguments, shares, tmp_path):
    ranks = measured(tmp_path, backend, "--workload", workload, *arguments)
    operations = {name: share * GRADIENT_BYTES[workload] for name, share in shares.items()}
    for rank, found in enumerate(ranks):
        breakdown = found["step_breakdown"]
        assert breakdown["num_steps"] == NUM_STEPS
        parts = [breakdown[name][rank] for name in ("data_wait_seconds", "compute_seconds", "communication_exposed_seconds")]
        assert sum(parts) == pytest.approx(breakdown["step_seconds"][rank])
        assert min(parts[:2]) > 0
        assert breakdown["plain_bus_bytes_per_second"] > 0
        by_size, whole = breakdown["all_reduce_seconds_by_size"], GRADIENT_BYTES[workload] * (2 if "fp64" in arguments else 1)
        assert [size for size, _ in by_size] == sorted({*step_breakdown.ALL_REDUCE_SIZES, whole})
        assert all(seconds > 0 for _, seconds in by_size)
    # Horovod's timeline is rank 0's.
    breakdown = ranks[0]["step_breakdown"]
    starts = breakdown["exchange_start_seconds"]
    assert starts
    assert all(0 <= one < NUM_STEPS * breakdown["step_seconds"][0] for each in starts.values() for one in each)
    assert all(each == sorted(each) for each in starts.values())
    assert breakdown["communication_seconds"][0] > 0
    assert breakdown["bus_bytes_per_second"] > 0
    assert {name: one["num_bytes"] for name, one in breakdown["operations"].items()} == pytest.approx(operations, abs=16)
    profile, without = ranks[0]["with_communication"], ranks[0]["without_communication"]
    assert (profile["seconds"] > 0, without["seconds"]) == (True, 0)
    sent = sum(num_bytes for _, num_bytes in profile["operations"].values())
    num_plain = 2 if "powersgd" in arguments else 0
    expected = (NUM_STEPS - num_plain) * sum(operations.values()) + num_plain * GRADIENT_BYTES[workload]
    assert sent == pytest.approx(expected, abs=16 * NUM_STEPS)
    pipelined = declared()[backend].pipelined
    for found in ranks:
        assert found["unchanged"] is True
        with_communication, without = found["losses"]
        # A stage that receives nothing computes on what it received last.
        assert pipelined or without == pytest.approx(with_communication, rel=1e-5)
        assert len(without) == NUM_STEPS
    if pipelined:
        library = breakdown["library"]
        assert library["num_microbatches"] == (1 if "naive" in arguments else 4)
        assert library["num_stages"] == (4 if {"interleaved", "zero_bubble"} & set(arguments) else 2)
        assert 0 < library["bubble_fraction"] < 1
    variant = name_of(backend, command_line.parse(Settings, "", "", list(map(str, arguments)))).partition("@")[2]
    one_model = ROWS[backend].one_model
    assert ranks[0]["in_sync"] == (one_model if isinstance(one_model, bool) else variant in one_model)


@pytest.mark.matrix
@pytest.mark.long
def test_tensor_parallelism_sends_activations(tmp_path):
    ranks = measured(tmp_path, "tensor_parallel", "--workload", "transformer")
    # 16 samples of a context of 64 with a width of 64, in float32, at each of two layers' two products and at the embedding, forward; the
    # same backward at five norms. Of logits, 256 wide, each rank has one half. The gradients of norms are summed.
    activations = 16 * 64 * 64 * 4
    operations = {"reduce_scatter": 10 * activations, "all_gather": 10 * activations / 2 + 16 * 64 * 128 * 4, "all_reduce": 5 * 64 * 4}
    breakdown = ranks[0]["step_breakdown"]
    found = {name: one["num_bytes"] for name, one in breakdown["operations"].items()}
    assert found == operations
    assert (ranks[0]["with_communication"]["seconds"] > 0, ranks[0]["without_communication"]["seconds"]) == (True, 0)
    for found in ranks:
        assert found["unchanged"] is True
    # Each rank has a part of one model; those of the norms, which all have, differ.
    assert ranks[0]["in_sync"] is False
