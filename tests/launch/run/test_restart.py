"""A run whose rank is killed resumes from its checkpoint, with the same result, under torchrun."""

import contextlib
import os
import signal
import subprocess

import numpy as np
import psutil
import pytest

from common.training import checkpoints
from common.training.checkpoints import NAME
from tests.support import kills, small_data
from tests.support.running import BIN, ROOT, environ

pytestmark = pytest.mark.matrix

EPOCHS = 40
TORCHRUN = (BIN / "torchrun", "--standalone", "--max-restarts=2", "--nproc-per-node=2", "-m", "frameworks.ddp")
TRAINING = ("--batch-size", 8, "--scaling", "strong", "--epochs", EPOCHS, "--no-stop-at-target", "--resume")


@contextlib.contextmanager
def started(data, folder):
    """Gives (the process of torchrun, the path of its last checkpoint); the run must complete, and nothing of it is left."""
    folder.mkdir()
    kept = folder / "kept"
    command = (*TORCHRUN, *data, *TRAINING, "--results", folder, "--machine", "here", "--run-id", "it", "--checkpoint-dir", kept)
    variables = environ() | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with (folder / "output").open("w") as output:
        run = subprocess.Popen(map(str, command), cwd=ROOT, env=variables, stdout=output, stderr=output, start_new_session=True)
    try:
        yield run, kept / NAME
        run.wait(timeout=120)
    finally:
        for process in psutil.Process(run.pid).children(recursive=True) if run.poll() is None else []:
            process.kill()
        run.kill()
    assert run.returncode == 0, (folder / "output").read_text()[-5000:]


def worker(run, rank):
    """The process of the rank."""
    for process in psutil.Process(run.pid).children(recursive=True):
        # Another process may end meanwhile.
        with contextlib.suppress(psutil.NoSuchProcess):
            trains = process.name().startswith("python") and "-m" in process.cmdline()
            if trains and process.environ().get("RANK") == rank:
                return process
    return None


def test_a_killed_rank_loses_only_the_epochs_after_the_last_checkpoint(tmp_path):
    data = small_data.write(tmp_path / "data", 20)["cnn"]
    with started(data, tmp_path / "undisturbed") as (_, undisturbed):
        pass
    with started(data, tmp_path / "disturbed") as (run, disturbed):
        kills.wait_until(lambda: disturbed.exists() and checkpoints.read(disturbed)[1].epochs >= 3, 60)
        os.kill(worker(run, "1").pid, signal.SIGKILL)
        assert checkpoints.read(disturbed)[1].epochs < EPOCHS
    assert '"resumed_after_epochs": 0' not in (tmp_path / "disturbed" / "here" / "it.json").read_text()
    (expected, expected_head), (parameters, head) = checkpoints.read(undisturbed), checkpoints.read(disturbed)
    assert head == expected_head
    assert parameters.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(parameters[name], values, err_msg=name)
