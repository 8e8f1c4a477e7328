"""The account of a step: its parts add up to it, and steps alone exchange nothing."""

import json
import math
import subprocess

import pytest

from common import account
from frameworks.distributed_side import covered
from tests import small_data
from tests.account_run import NUM_STEPS
from tests.running import BIN, ROOT, environ, train

# Of 1,199,882 and of 139,584 parameters in float32.
GRADIENT_BYTES = {"cnn": 4_799_528, "transformer": 558_336}


@pytest.mark.parametrize(
    ("together", "alone", "parts"),
    [
        ((1.0, 0.1), (0.7, 0.1), (0.1, 0.6, 0.3)),
        ((1.0, 0.0), (1.0, 0.0), (0.0, 1.0, 0.0)),
        # Data that took longer by chance is not communication.
        ((1.0, 0.3), (0.8, 0.1), (0.3, 0.7, 0.0)),
        # Noise is told as it was measured.
        ((0.9, 0.0), (1.0, 0.0), (0.0, 1.0, -0.1)),
    ],
)
def test_the_parts_of_a_step_add_up_to_it(together, alone, parts):
    step, *found = account.parts_of(together, alone).values()
    assert step == together[0]
    assert found == pytest.approx(parts)
    assert sum(found) == pytest.approx(step)


@pytest.mark.parametrize(
    ("operations", "num_ranks", "bus_bytes"),
    [
        ({"all_reduce": (2, 100)}, 2, 100),
        ({"all_reduce": (2, 100)}, 4, 150),
        # What every rank of four has of 100 bytes is sent to the three others; a sum of 100 is scattered over four.
        ({"all_gather": (1, 25)}, 4, 75),
        ({"reduce_scatter": (1, 100)}, 4, 75),
        ({"reduce_scatter": (1, 100), "all_gather": (1, 25)}, 4, 150),
        ({"broadcast": (1, 100)}, 4, 100),
        ({"all_reduce": (2, 100)}, 1, None),
        ({}, 4, None),
    ],
)
def test_bus_bandwidth_is_what_the_busiest_link_carries(operations, num_ranks, bus_bytes):
    assert account.bandwidth(operations, 0.5, num_ranks) == (None if bus_bytes is None else pytest.approx(2 * bus_bytes))


@pytest.mark.parametrize("seconds", [0.0, math.nan])
def test_no_time_is_no_bandwidth(seconds):
    assert account.bandwidth({"all_reduce": (1, 100)}, seconds, 2) is None


@pytest.mark.parametrize(
    ("spans", "length"), [([], 0), ([(0, 2), (5, 6)], 3), ([(5, 6), (0, 2)], 3), ([(0, 4), (1, 2), (3, 6)], 6), ([(1, 2), (1, 2)], 1)]
)
def test_collectives_at_the_same_time_count_once(spans, length):
    assert covered(spans) == length


def test_only_as_many_batches_are_taken_and_the_wait_for_them_is_told():
    first = account.First([1, 2, 3], 2)
    assert (len(first), list(first), first.data_seconds > 0) == (2, [1, 2], True)


@pytest.mark.matrix
def test_a_run_that_is_killed_in_its_account_keeps_what_it_measured(tmp_path):
    data = small_data.write(tmp_path / "data", 20)["cnn"]
    arguments = (*data, "--batch-size", 8, "--epochs", 1, "--account")
    status, record, _ = train("single", 1, tmp_path, *map(str, arguments), sabotage="killed_in_its_account")
    assert (status != 0, record["status"], len(record["losses"]), record["account"]) == (True, "started", 2, None)


def measured(folder, backend, *arguments):
    """What tests/account_run.py has found on each of two ranks."""
    command = [BIN / "mpiexec", "-n", 2, BIN / "python", "-m", "tests.account_run", folder, backend, "--batch-size", 16, *arguments]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, env=environ(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.matrix
@pytest.mark.long
@pytest.mark.parametrize(
    ("backend", "workload", "arguments", "shares"),
    [
        ("ddp", "cnn", (), {"all_reduce": 1}),
        ("ddp", "transformer", (), {"all_reduce": 1}),
        ("horovod_torch", "cnn", (), {"all_reduce": 1}),
        ("horovod_tf", "cnn", (), {"all_reduce": 1}),
        ("horovod_keras", "cnn", (), {"all_reduce": 1}),
        ("deepspeed_zero", "cnn", ("--zero-stage", 1), {"all_reduce": 1, "all_gather": 1 / 2}),
        ("deepspeed_zero", "cnn", ("--zero-stage", 3), {"reduce_scatter": 1, "all_gather": 1 / 2, "all_reduce": 0}),
    ],
)
def test_each_backend_has_an_account(backend, workload, arguments, shares, tmp_path):
    ranks = measured(tmp_path, backend, "--workload", workload, *arguments)
    operations = {name: share * GRADIENT_BYTES[workload] for name, share in shares.items()}
    for rank, found in enumerate(ranks):
        told = found["account"]
        assert told["num_steps"] == NUM_STEPS
        parts = [told[name][rank] for name in ("data_wait_seconds", "compute_seconds", "communication_exposed_seconds")]
        assert sum(parts) == pytest.approx(told["step_seconds"][rank])
        assert min(parts[:2]) > 0
        assert told["plain_bus_bytes_per_second"] > 0
    # Horovod's timeline is rank 0's.
    told = ranks[0]["account"]
    assert told["communication_seconds"][0] > 0
    assert told["bus_bytes_per_second"] > 0
    assert {name: one["num_bytes"] for name, one in told["operations"].items()} == pytest.approx(operations, abs=16)
    together, alone = ranks[0]["together"], ranks[0]["alone"]
    assert (together["seconds"] > 0, alone["seconds"]) == (True, 0)
    sent = sum(num_bytes for _, num_bytes in together["operations"].values())
    assert sent == pytest.approx(NUM_STEPS * sum(operations.values()), abs=16 * NUM_STEPS)
    # Stage 3 has one model in all ranks' shards.
    assert ranks[0]["in_sync"] == ("3" in map(str, arguments))
