"""However a user's file ends, prints or hangs, the program that reads it prints one line, or its own output alone."""

import os
import subprocess
import sys
import threading

import pytest

from common import apart
from common.model import user_model
from tests.support.mistakes import refused
from tests.support.running import ROOT
from tests.support.user_models import PLAIN, written

PROGRAM = (sys.executable, str(ROOT / "launch/run_module.py"))
THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(900,)).start()\n"
# What a file does before all else, and how its process ends.
ENDINGS = {
    "segfault": (
        "import ctypes\nprint('last words', flush=True)\nctypes.string_at(0)\n",
        "was killed by SIGSEGV; its last line: last words",
    ),
    "endless-import": ("while True: print('again')\n", "its process has not ended after 4 s; its last line: again"),
}


@pytest.fixture
def asking(monkeypatch):
    """This process asks others, as a matrix does."""
    monkeypatch.setattr(apart, "HERE", threading.Event())


@pytest.mark.parametrize("name", ENDINGS)
def test_an_ending_is_one_line(name, tmp_path, asking, monkeypatch):
    monkeypatch.setattr(apart, "LIMIT_SECONDS", 4.0 if name.startswith("endless") else 60.0)
    path = written(tmp_path, ENDINGS[name][0] + PLAIN)
    with refused(f"--model {path}: ", ENDINGS[name][1]):
        user_model.described(str(path), None)


def test_threads_prints_and_folders_of_a_file_are_its_own(tmp_path, asking, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, PLAIN + THREAD + "import os\nos.chdir('/')\nprint('greeting')\n")
    assert user_model.described(str(path), None).parameters == {"weight": (4, 3), "bias": (4,)}
    assert os.getcwd() == str(tmp_path)
    assert "user_file" not in str(sys.modules.get(path.stem))


def test_a_program_prints_one_line_where_a_file_ends_its_process(tmp_path):
    path = written(tmp_path, "import os\nprint('greeting')\nos._exit(0)\n" + PLAIN)
    command = [*PROGRAM, "launch.matrix", "2", "--print-jobs", "slurm", "--model", str(path)]
    process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120)
    assert (process.returncode, process.stdout, process.stderr.count("\n")) == (2, "", 1), process.stderr
    assert "its process ended with exit status 0" in process.stderr
