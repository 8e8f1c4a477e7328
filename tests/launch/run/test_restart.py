"""Under torchrun a run whose worker is killed resumes from its checkpoint, with the same result."""

import os
import signal
import subprocess
import time

import numpy as np
import psutil
import pytest

from common.training import checkpoints
from common.training.checkpoints import LAST
from tests.support import small_data
from tests.support.running import BIN, ROOT, environ

pytestmark = [pytest.mark.matrix, pytest.mark.long]

EPOCHS = 40


def start(data, folder):
    kept = folder / "kept"
    command = [BIN / "torchrun", "--standalone", "--max-restarts=2", "--nproc-per-node=2", "-m", "frameworks.ddp", *data]
    command += ["--batch-size", "8", "--last-batch", "pad", "--scaling", "strong", "--epochs", str(EPOCHS), "--no-stop-at-target"]
    command += ["--results", folder, "--machine", "here", "--run-id", "it", "--checkpoint-dir", kept, "--resume"]
    variables = environ() | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return kept / LAST, subprocess.Popen(
        [str(part) for part in command], cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def worker(torchrun, rank):
    """The process of a rank, or None."""
    for process in psutil.Process(torchrun.pid).children():
        if process.environ().get("RANK") == str(rank):
            return process
    return None


def test_a_killed_worker_loses_only_the_epochs_after_the_last_checkpoint(tmp_path):
    data = small_data.write(tmp_path / "data", 20)["cnn"]
    undisturbed, run = start(data, tmp_path / "undisturbed")
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 0, output
    disturbed, run = start(data, tmp_path / "disturbed")
    limit = time.monotonic() + 60
    while not disturbed.exists() or checkpoints.read(disturbed)[1].epochs < 5:
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < limit
        time.sleep(0.02)
    os.kill(worker(run, 1).pid, signal.SIGKILL)
    reached = checkpoints.read(disturbed)[1].epochs
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 0, output
    assert reached < EPOCHS
    record = (tmp_path / "disturbed" / "here" / "it.json").read_text()
    assert '"resumed_after_epochs": 0' not in record
    (expected, expected_head), (parameters, head) = checkpoints.read(undisturbed), checkpoints.read(disturbed)
    assert head == expected_head
    assert parameters.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(parameters[name], values, err_msg=name)
