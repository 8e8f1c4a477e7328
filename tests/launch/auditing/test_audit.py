"""launch/audit on a script that a launcher starts: its output and exit status, the verdicts, and nothing left behind."""

import os
import signal
import subprocess

import pytest

from tests.launch.auditing.editing import script_text
from tests.support.running import BIN, ROOT, completed, environ

AUDIT = ROOT / "launch" / "audit"
SCRIPT = script_text("images")


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "a command is missing"),
        (("--",), "a command is missing"),
        (("--", "no-such-launcher", "train.py"), "there is no program no-such-launcher"),
        (("--steps", "0", "--", "true"), "--steps is 0; it is at least 1"),
        (("--steps", "many", "--", "true"), "invalid int value: 'many'"),
    ],
)
def test_a_mistake_has_one_line(arguments, problem):
    done = completed(AUDIT, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr.splitlines()[-1]


def test_a_command_that_trains_nothing_is_not_judged(tmp_path):
    done = completed(AUDIT, "--", BIN / "python", "-c", "print('done')", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "done\n")
    assert done.stderr.count("no process with this environment computed gradients with PyTorch 2.5 or newer") == 9


def test_the_exit_status_of_a_script_is_kept():
    assert completed(AUDIT, "--", BIN / "python", "-c", "raise SystemExit(7)").returncode == 7
    assert completed(AUDIT, "--", BIN / "python", "-c", "import os; os.kill(os.getpid(), 9)").returncode == 128 + signal.SIGKILL


@pytest.mark.matrix
def test_a_script_under_torchrun_is_judged_and_undisturbed(tmp_path):
    unshuffled = SCRIPT.replace("        sampler.set_epoch(epoch)\n", "")
    # Python prints a warning of a line once.
    (tmp_path / "train.py").write_text(unshuffled.replace("optimizer.step()", "optimizer.step(); __import__('warnings').warn('a step')"))
    results = files_in(ROOT / "results")
    done = completed(AUDIT, "--", BIN / "torchrun", "--nproc-per-node", "2", "train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert {line.split()[0] for line in done.stdout.splitlines()} == {"step", "epoch"}
    assert "wrong             samples     two epochs of rank 0 have the samples in the same order" in done.stderr
    assert done.stderr.count("right  ") == 8
    assert done.stderr.count("UserWarning: a step") == 2
    assert files_in(tmp_path) == ["net.pt", "train.py"]
    assert files_in(ROOT / "results") == results


@pytest.mark.long
def test_a_script_that_is_stopped_is_judged_by_what_was_seen(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT.replace("args.epochs", "10**6"))
    command = [AUDIT, "--steps", "5", "--", BIN / "torchrun", "--nproc-per-node", "2", "train.py"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        if "epoch" in line:
            os.kill(process.pid, signal.SIGTERM)
            break
    _, printed = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "right             gradients" in printed
