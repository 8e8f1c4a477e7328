"""A rank fails or runs out of memory: the run ends, and the record says why. test_matrix.py also kills some, and lets one raise."""

import pytest

from tests.support import made_backends
from tests.support.running import matrix, records_in, with_backends

pytestmark = pytest.mark.matrix

# Longer than the first step takes, which is compiled, on cores that others use too.
WATCHDOG_TIMEOUT = ("--watchdog-timeout", "15")


def test_a_rank_that_is_stopped_is_named_by_the_others(checkout, tmp_path):
    """One waits in Gloo, and one in MPI."""
    records, left = made_backends.run(checkout, ["ddp", "horovod_torch"], "stopped", tmp_path, *WATCHDOG_TIMEOUT)
    for record in records.values():
        assert record["status"] == "failed"
        assert record["error"].startswith("rank 1 hung without a report")
        assert "step 6/24 of epoch 1 for 15 s" in record["error"]
        assert any("train_epoch" in line for line in record["output_tail"])
    assert left == []


# A limit of addresses: the CNN takes about 3 GiB of them, of which libraries are most. The Transformer's batch takes more than the rest.
LIMITED = """
import resource

from common.declarations import Backend
from common.training.program import main
from frameworks.single import Trainer

BACKEND = Backend(one_rank=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (5 * 2**30, 5 * 2**30))
    main(Trainer, __file__)
"""


def test_a_run_out_of_memory_is_told_in_one_line_and_the_matrix_goes_on(checkout, tmp_path):
    options = ("--backends", "limited", "--workloads", "transformer-base,cnn", "--epochs", "1", "--batch-size", "512")
    with with_backends(checkout, {"limited": LIMITED}):
        done = matrix(checkout, tmp_path, "1", *options, "--no-step-breakdown")
    assert done.returncode == 1, done.stdout + done.stderr
    records = {record["workload"]: record for record in records_in(tmp_path)}
    failed = records["transformer-base"]
    assert (failed["status"], records["cnn"]["status"]) == ("failed", "ok")
    assert failed["error"].startswith("rank 0: before the first epoch: out of memory (")
    assert failed["error"].endswith("; --recompute, a smaller --batch-size, or fsdp on several ranks would need less")
    assert not any("Traceback" in line for line in failed["output_tail"])
