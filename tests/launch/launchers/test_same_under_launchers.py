"""Under every available launcher the loss of each step is bitwise the same."""

import json
import subprocess

import pytest

from common.backends import declared
from tests.support import small_data
from tests.support.backends import DISTRIBUTED
from tests.support.running import BIN, ROOT, environ

pytestmark = [pytest.mark.matrix, pytest.mark.long]

LAUNCHERS = {
    "mpich": [BIN / "mpiexec", "-n", "2", BIN / "python"],
    "torchrun": [BIN / "torchrun", "--standalone", "--nproc-per-node=2"],
    "aprun": [ROOT / "launch" / "aprun", "-n", "2", "-N", "2", "--cc", "depth", "-d", "1", BIN / "python"],
}


@pytest.mark.parametrize("backend", DISTRIBUTED)
def test_a_backend_trains_the_same_under_every_launcher(backend, tmp_path):
    data = small_data.write(tmp_path / "data", 100)["cnn"]
    losses = {}
    for name, launcher in LAUNCHERS.items():
        if name == "torchrun" and declared()[backend].needs_mpi:
            continue
        settings = (*data, "--batch-size", "8", "--epochs", "1", "--no-step-breakdown")
        settings += ("--results", tmp_path, "--machine", "here", "--run-id", name)
        command = [str(part) for part in (*launcher, "-m", f"frameworks.{backend}", *settings)]
        done = subprocess.run(command, cwd=ROOT, env=environ(), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        losses[name] = json.loads((tmp_path / "here" / f"{name}.json").read_text())["losses"]
    assert len(losses["mpich"]) == 6
    assert all(one == losses["mpich"] for one in losses.values()), losses
