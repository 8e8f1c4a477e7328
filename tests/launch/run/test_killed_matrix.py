"""A matrix that is killed by SIGKILL takes its run with it, and can be resumed."""

import signal
import subprocess
import sys
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
    kills.wait_until(lambda: len(supervisor.processes_of(mark)) > 1)
    process.send_signal(number)
    process.wait(timeout=20)
    kills.wait_until(lambda: not supervisor.processes_of(mark))
    # A rank that cannot print any more would fail of that, and record it.
    assert not (tmp_path / "broken").exists()


def test_a_run_of_another_matrix_is_left_alone(tmp_path):
    with kills.marked(f"{tmp_path}/other", "sleep", "60") as process:
        supervisor.end(str(tmp_path), 0.5)
        assert supervisor.processes_of(f"{tmp_path}/other") == [process.pid]
        assert process.poll() is None


def test_a_process_of_any_name_is_found(tmp_path):
    script = "import time; open('/proc/self/comm', 'wb').write(b'\\xff) R'); time.sleep(60)"
    with kills.marked(str(tmp_path), sys.executable, "-c", script) as process:
        kills.wait_until(lambda: b"\xff" in Path(f"/proc/{process.pid}/comm").read_bytes())
        assert supervisor.processes_of(str(tmp_path)) == [process.pid]
        assert supervisor.is_running(process.pid)


# test_matrix.py kills one under MPICH, and test_slurm.py one under srun, which it resumes.
@pytest.mark.matrix
def test_a_matrix_that_is_killed_under_torchrun_leaves_no_process(checkout, tmp_path):
    matrix = kills.start(checkout, tmp_path, "--launcher", "torchrun", "--epochs", "4")
    kills.wait_until_training(matrix, tmp_path)
    outcome = kills.kill(matrix, checkout, tmp_path)
    assert outcome.num_before > 2
    assert (outcome.left, outcome.statuses) == ([], ["started"])
