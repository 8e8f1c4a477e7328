"""What ends a program from outside."""

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from tests.support import kills
from tests.support.running import ROOT

PROGRAM = """
import dataclasses, signal, sys, time
from pathlib import Path
from common import command_line

def run(_):
    try:
        Path(sys.argv[0]).write_text("runs")
        time.sleep(60)
    finally:
        print("what ends", flush=True)
        time.sleep(float(Path(sys.argv[0]).name.removeprefix("state") or 0))
        Path(sys.argv[0]).write_text("ended")

sys.argv[:] = sys.argv[1:2]
command_line.main(run, dataclasses.make_dataclass("Options", []), "program", "Sleeps.")
"""


@pytest.mark.parametrize("around", [[], ["nohup"]])
def test_a_program_ends_with_its_terminal_unless_it_is_to_survive_it(around, tmp_path):
    path = tmp_path / "state"
    pid, terminal = pty.fork()
    if not pid:
        # Whatever started the tests may ignore it.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        # nohup writes what would go to the terminal into the current folder.
        os.chdir(tmp_path)
        command = [*around, sys.executable, "-c", PROGRAM, str(path)]
        os.execvpe(command[0], command, os.environ | {"PYTHONPATH": str(ROOT)})
    try:
        kills.wait_until(lambda: path.exists() and path.read_text() == "runs")
        os.close(terminal)
        if around:
            time.sleep(0.3)
            assert os.waitpid(pid, os.WNOHANG) == (0, 0)
            assert path.read_text() == "runs"
        else:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
            assert path.read_text() == "ended"
    finally:
        if around:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_what_an_interrupt_ends_is_not_interrupted_by_further_signals(tmp_path):
    path = tmp_path / "state1"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)], env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    )
    kills.wait_until(lambda: path.exists() and path.read_text() == "runs")
    for number in [signal.SIGINT, signal.SIGTERM] * 3:
        process.send_signal(number)
        time.sleep(0.1)
    assert (process.communicate(timeout=20)[0], process.returncode, path.read_text()) == (b"what ends\n", 130, "ended")
