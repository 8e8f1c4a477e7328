"""Files that are replaced whole, wherever the writing is cut: the order of the calls, and what a reader finds."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from common import durable
from tests.support.running import ROOT

# The system calls of a replacement, in their order; fsync is called for the part and then for the folder.
CALLS = ("write", "fsync", "replace", "fsync")
OLD, NEW = "old", "new" * 1000
# Writes the file; before, within or after one of the calls the process ends at once, or an exception is raised.
WRITER = """
import io, os, sys
from pathlib import Path
from common import durable

write_text = Path.write_text
path, cut_at, when, how = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
num_calls = 0

def cut():
    if how == "exit":
        os._exit(9)
    raise OSError(28, "No space left on device")

def cutting(function):
    def call(*arguments, **named):
        global num_calls
        num_calls += 1
        number = num_calls
        if (number, when) == (cut_at, "before"):
            cut()
        if (number, when, function) == (cut_at, "within", write_text):
            # As a full disk or a kill cuts it: with half of the data written.
            write_text(arguments[0], arguments[1][: len(arguments[1]) // 2])
            cut()
        result = function(*arguments, **named)
        if (number, when) == (cut_at, "after"):
            cut()
        return result
    return call

for module, name in ((Path, "write_text"), (os, "fsync"), (os, "replace")):
    setattr(module, name, cutting(getattr(module, name)))
durable.write_text(path, sys.argv[5])
"""
MANY_WRITES = """
import sys
from pathlib import Path
from common import durable

for number in range(50):
    durable.write_text(Path(sys.argv[1]), str(number % 10) * 100_000)
"""


def write_in_child(path, cut_at, when, how):
    """The exit status of a process that writes NEW and is cut `when` the call number `cut_at` (from 1) is made."""
    command = [sys.executable, "-c", WRITER, str(path), str(cut_at), when, how, NEW]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=60).returncode


@pytest.mark.parametrize("how", ["exit", "raise"])
@pytest.mark.parametrize(("cut_at", "when"), [(1, "within"), *itertools.product(range(1, len(CALLS) + 1), ("before", "after"))])
@pytest.mark.parametrize("exists", [True, False])
def test_wherever_it_is_cut_a_reader_finds_the_old_or_the_new_file_whole(exists, cut_at, when, how, tmp_path):
    path = tmp_path / "file"
    if exists:
        path.write_text(OLD)
    assert write_in_child(path, cut_at, when, how) != 0
    replaced = cut_at > 3 or (cut_at, when) == (3, "after")
    expected = NEW if replaced else OLD if exists else None
    assert (path.read_text() if path.exists() else None) == expected
    if how == "raise":
        assert {one.name for one in tmp_path.iterdir()} <= {"file"}
    # What a cut has left is in nobody's way.
    assert write_in_child(path, 0, "before", how) == 0
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == {"file": NEW}


def test_the_part_is_on_the_disk_before_the_file_is_replaced_and_the_folder_after(tmp_path, monkeypatch):
    calls = []

    def note(function, call_of):
        def noted(*arguments, **named):
            calls.append(call_of(*arguments))
            return function(*arguments, **named)

        return noted

    def target(descriptor):
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name

    monkeypatch.setattr(Path, "write_text", note(Path.write_text, lambda path, text: ("write", path.name)))
    monkeypatch.setattr(os, "fsync", note(os.fsync, lambda descriptor: ("fsync", target(descriptor))))
    monkeypatch.setattr(os, "replace", note(os.replace, lambda part, path: ("replace", part.name, path.name)))
    durable.write_text(tmp_path / "file", NEW)
    part = f"file{durable.PART}"
    assert calls == [("write", part), ("fsync", part), ("replace", part, "file"), ("fsync", tmp_path.name)]


def test_a_reader_beside_many_writes_never_finds_half_a_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("0" * 100_000)
    writer = subprocess.Popen([sys.executable, "-c", MANY_WRITES, str(path)], cwd=ROOT)
    num_read = 0
    while writer.poll() is None or not num_read:
        text = path.read_text()
        num_read += 1
        assert len(text) == 100_000
        assert len(set(text)) == 1
    assert writer.returncode == 0


@pytest.mark.parametrize(
    "module",
    ["common/record/records.py", "common/training/checkpoints.py", "common/tracing/chrome.py", "launch/trace/events.py"],
)
def test_what_must_survive_a_crash_is_written_so(module):
    text = (ROOT / module).read_text()
    assert "durable." in text
    assert "os.replace" not in text
