"""However a user's file ends, prints or hangs, the program that reads it prints one line, or its own output alone."""

import json
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
    "exit": ("import os\nos._exit(0)\n", "its process ended with exit status 0, without a line of output"),
    "segfault": (
        "import ctypes\nprint('last words', flush=True)\nctypes.string_at(0)\n",
        "was killed by SIGSEGV; its last line: last words",
    ),
    "endless-import": ("while True: print('again')\n", "its process has not ended after 4 s; its last line: again"),
    "descriptors": ("import os\nos.closerange(3, 1000)\n", "its process ended with exit status 1; its last line: "),
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


@pytest.mark.parametrize(
    ("arguments", "text", "status"),
    [
        (("launch.memory", "--json", "--backends", "ddp"), PLAIN + "print('greeting')\n" + THREAD, 0),
        (("launch.matrix", "2", "--print-jobs", "slurm"), ENDINGS["exit"][0] + PLAIN, 2),
    ],
    ids=["memory", "matrix"],
)
def test_programs_print_their_own_output_or_one_line(arguments, text, status, tmp_path):
    command = [*PROGRAM, *arguments, "--model", str(written(tmp_path, text))]
    process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120)
    if status:
        assert (process.returncode, process.stdout, process.stderr.count("\n")) == (status, "", 1), process.stderr
        assert "its process ended with exit status 0" in process.stderr
    else:
        assert (process.returncode, process.stderr) == (0, "")
        assert [row["backend"] for row in json.loads(process.stdout)["backends"]] == ["ddp"]
