"""A matrix that is killed by SIGKILL takes its run with it, and can be resumed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.run import supervisor
from tests.support import kills
from tests.support.running import ROOT

# A run whose process ignores SIGTERM, in a session of its own, and keeps printing; where it cannot, it makes a file.
SCRIPT = """
import signal, sys
from launch.run import processes, turns
# Whoever runs the tests in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
processes.GRACE_SECONDS = 0.5
loop = "trap '' TERM PIPE; while :; do echo line || touch $0/broken; sleep 0.05; done"
command = ["setsid", "--wait", "sh", "-c", loop, sys.argv[1]]
turns.alone(processes.run(command, {}, sys.argv[1], ".", 60, print))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_ends_with_the_process_that_started_it(number, tmp_path):
    mark = str(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, mark], cwd=ROOT, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(supervisor.processes_of(mark)) > 1)
    process.send_signal(number)
    process.wait(timeout=20)
    wait_until(lambda: not supervisor.processes_of(mark))
    # A rank that cannot print any more would fail of that, and record it.
    assert not (tmp_path / "broken").exists()


def test_a_run_of_another_matrix_is_left_alone(tmp_path):
    other = subprocess.Popen(["sleep", "60"], env=os.environ | {supervisor.MARK: f"{tmp_path}/other"})
    try:
        wait_until(lambda: supervisor.processes_of(f"{tmp_path}/other"))
        supervisor.end(str(tmp_path), 0.5)
        assert supervisor.processes_of(f"{tmp_path}/other") == [other.pid]
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_process_of_any_name_is_found(tmp_path):
    script = "import time; open('/proc/self/comm', 'wb').write(b'\\xff) R'); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", script], env=os.environ | {supervisor.MARK: str(tmp_path)})
    try:
        wait_until(lambda: b"\xff" in (Path("/proc") / str(process.pid) / "comm").read_bytes())
        assert supervisor.processes_of(str(tmp_path)) == [process.pid]
        assert supervisor.is_running(process.pid)
    finally:
        process.kill()
        process.wait()


def wait_until(condition, limit_seconds=20):
    limit = time.monotonic() + limit_seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


# test_matrix.py kills one under MPICH, and test_slurm.py one under srun, which it resumes.
@pytest.mark.matrix
def test_a_matrix_that_is_killed_under_torchrun_leaves_no_process(checkout, tmp_path):
    matrix = kills.start(checkout, tmp_path, "--launcher", "torchrun", "--epochs", "4")
    kills.wait_until_training(matrix, tmp_path)
    outcome = kills.kill(matrix, checkout, tmp_path)
    assert outcome.num_before > 2
    assert (outcome.left, outcome.statuses) == ([], ["started"])
