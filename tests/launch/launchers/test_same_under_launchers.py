"""Under every launcher on one node the loss of each step is bitwise the same."""

import json
import subprocess

import pytest

from common.backends import declared
from tests.support.backends import DISTRIBUTED
from tests.support.running import BIN, ROOT, environ

pytestmark = [pytest.mark.matrix, pytest.mark.long]

TORCHRUN = (BIN / "torchrun", "--standalone", "--nproc-per-node=2")
# It replaces itself by mpiexec, which no backend sees.
APRUN = (ROOT / "launch" / "aprun", "-n", "2", "-N", "2", "--cc", "depth", "-d", "1", BIN / "python")


@pytest.mark.parametrize(
    ("launcher", "backend"), [*((TORCHRUN, name) for name in DISTRIBUTED if not declared()[name].needs_mpi), (APRUN, "horovod_torch")]
)
def test_a_backend_trains_the_same_under_every_launcher(launcher, backend, short_run, on_one_node, tmp_path):
    settings = ("--workload", "cnn", *short_run, "--results", tmp_path, "--machine", "here", "--run-id", "it")
    command = [str(part) for part in (*launcher, "-m", f"frameworks.{backend}", *settings)]
    done = subprocess.run(command, cwd=ROOT, env=environ(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "here" / "it.json").read_text())["losses"] == on_one_node[backend]["losses"]
