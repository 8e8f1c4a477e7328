"""Elastic Horovod: a run whose rank is killed resumes with a rank on a spare host, with the same result."""

import contextlib
import os
import signal
import subprocess
import time

import numpy as np
import psutil
import pytest

from common.errors import UserError
from common.process import elastic
from common.training import checkpoints
from common.training.checkpoints import LAST
from tests.support import small_data
from tests.support.running import BIN, ROOT, environ

HorovodInternalError = type("HorovodInternalError", (Exception,), {})
UnknownError = type("UnknownError", (Exception,), {})


@pytest.mark.parametrize(
    ("problem", "is_loss"),
    [
        (HorovodInternalError("Read error: Connection reset by peer"), True),
        # TensorFlow's.
        (UnknownError("Read error [Op:HorovodAllreduce]"), True),
        (UnknownError("something else"), False),
        (UserError("horovodrun started 2 ranks, Horovod sees 1"), False),
        (RuntimeError("Horovod never all-reduces under Keras 3"), False),
    ],
)
def test_a_restart_follows_only_horovods_errors_for_a_lost_rank(problem, is_loss):
    assert elastic.is_loss(problem) == is_loss


EPOCHS = 25
# One machine by three names: two hosts and a spare one.
HOSTS = ("localhost", "127.0.0.1", "127.1")


def start(data, folder):
    """Starts a run; returns (path of the last checkpoint, process of horovodrun)."""
    folder.mkdir()
    kept, hosts = folder / "kept", folder / "hosts"
    hosts.write_text("#!/bin/sh\n" + "".join(f"echo {name}:1\n" for name in HOSTS))
    hosts.chmod(0o755)
    command = [BIN / "horovodrun", "--gloo", "--network-interfaces", "lo", "-np", "2", "--min-np", "2", "--max-np", "2"]
    command += ["--host-discovery-script", hosts, BIN / "python", "-m", "frameworks.horovod_torch", *data]
    command += ["--batch-size", "8", "--last-batch", "pad", "--scaling", "strong", "--epochs", EPOCHS, "--no-stop-at-target"]
    command += ["--results", folder, "--machine", "here", "--run-id", "it", "--checkpoint-dir", kept, "--resume"]
    with (folder / "output").open("w") as output:
        run = subprocess.Popen(map(str, command), cwd=ROOT, env=environ(), stdout=output, stderr=output, start_new_session=True)
    return kept / LAST, run


def finish(run, folder):
    """Waits for the end of the run and kills its remaining processes."""
    try:
        run.wait(timeout=120)
    finally:
        for process in psutil.Process(run.pid).children(recursive=True) if run.poll() is None else []:
            process.kill()
        run.kill()
    assert run.returncode == 0, (folder / "output").read_text()[-5000:]


def worker(run):
    """The process of rank 0."""
    for process in psutil.Process(run.pid).children(recursive=True):
        # Another one, such as horovodrun's search for hosts, may end meanwhile.
        with contextlib.suppress(psutil.NoSuchProcess):
            trains = process.name().startswith("python") and "-m" in process.cmdline()
            if trains and process.environ().get("HOROVOD_RANK") == "0":
                return process
    return None


@pytest.mark.matrix
@pytest.mark.long
def test_a_killed_rank_0_loses_only_the_epochs_after_the_last_checkpoint(tmp_path):
    data = small_data.write(tmp_path / "data", 20)["cnn"]
    undisturbed, run = start(data, tmp_path / "undisturbed")
    finish(run, tmp_path / "undisturbed")
    disturbed, run = start(data, tmp_path / "disturbed")
    limit = time.monotonic() + 60
    while not disturbed.exists() or checkpoints.read(disturbed)[1].epochs < 3:
        assert run.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.02)
    os.kill(worker(run).pid, signal.SIGKILL)
    reached = checkpoints.read(disturbed)[1].epochs
    finish(run, tmp_path / "disturbed")
    assert reached < EPOCHS
    assert '"resumed_after_epochs": 0' not in (tmp_path / "disturbed" / "here" / "it.json").read_text()
    (expected, expected_about), (state, about) = checkpoints.read(undisturbed), checkpoints.read(disturbed)
    assert about == expected_about
    assert state.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(state[name], values, err_msg=name)
