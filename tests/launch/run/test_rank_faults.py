"""A rank fails: the run ends, no process is left, and the record names the rank. test_matrix.py also kills one, and lets one raise."""

import pytest

from tests.support import made_backends

pytestmark = [pytest.mark.matrix, pytest.mark.long]

# Longer than the first step takes, which is compiled, on cores that others use too.
WATCHDOG_TIMEOUT = ("--watchdog-timeout", "15")


# One that waits in Gloo and one that waits in MPI; `python -m tests.bench.faults` measures all.
@pytest.mark.parametrize("backend", ["deepspeed_zero", "horovod_keras"])
def test_a_rank_that_is_stopped_is_named_by_the_others(backend, checkout, tmp_path):
    record, _, left = made_backends.run(checkout, backend, "stopped", tmp_path, *WATCHDOG_TIMEOUT)
    assert record["status"] == "failed"
    assert record["error"].startswith("rank 1 hung without a report")
    assert "step 21/44 of epoch 1 for 15 s" in record["error"]
    assert any("train_epoch" in line for line in record["output_tail"])
    assert left == []


# Rank 0's process has the server at which Horovod's ranks meet over Gloo.
@pytest.mark.parametrize("backend", ["horovod_torch@gloo", "ddp@mpi"])
def test_a_rank_that_is_killed_over_another_transport_is_named(backend, checkout, tmp_path):
    record, _, left = made_backends.run(checkout, backend, "killed", tmp_path)
    assert record["status"] == "failed"
    assert record["error"].startswith("rank 1 was killed by SIGKILL")
    assert record["transport"] == backend.partition("@")[2]
    assert left == []
