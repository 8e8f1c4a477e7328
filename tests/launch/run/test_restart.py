"""A run whose rank is killed resumes from its checkpoint under torchrun."""

import contextlib
import json
import os
import signal
import subprocess

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
    """That a run which goes on trains what one without an end would have is shown in tests/common/training/test_checkpoints.py."""
    data = small_data.write(tmp_path / "data", 20)["cnn"]
    with started(data, tmp_path) as (run, checkpoint):
        kills.wait_until(lambda: checkpoint.exists() and checkpoints.read(checkpoint)[1].epochs >= 3, 60)
        os.kill(worker(run, "1").pid, signal.SIGKILL)
        assert checkpoints.read(checkpoint)[1].epochs < EPOCHS
    record = json.loads((tmp_path / "here" / "it.json").read_text())
    assert (record["status"], record["in_sync"], checkpoints.read(checkpoint)[1].epochs) == ("ok", True, EPOCHS)
    assert 3 <= record["resumed_after_epochs"] < EPOCHS
