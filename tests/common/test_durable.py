"""Files that are replaced whole, wherever the writing is cut: the order of the calls, and what a reader finds."""

import itertools
import multiprocessing
import os
from pathlib import Path

import pytest

from common import durable
from tests.support.running import ROOT

# What a replacement calls: write_text, fsync for the part, replace, and fsync for the folder.
STEPS = ((Path, "write_text"), (os, "fsync"), (os, "replace"))
NUM_CALLS = 4
OLD, NEW = "old", "new" * 1000


def write(path, cut_at, within, ending):
    """Writes NEW; before the call number `cut_at` (from 1), or within it, the process ends at once, or an exception is raised."""
    write_text, numbers = Path.write_text, itertools.count(1)

    def cut():
        if ending == "exit":
            os._exit(9)
        raise OSError(28, "No space left on device")

    def cutting(function):
        def call(*arguments, **named):
            if next(numbers) != cut_at:
                return function(*arguments, **named)
            if within:
                # As a full disk or a kill cuts it: with half of the data written.
                write_text(arguments[0], arguments[1][: len(arguments[1]) // 2])
            return cut()

        return call

    for owner, name in STEPS:
        setattr(owner, name, cutting(getattr(owner, name)))
    durable.write_text(path, NEW)


def status_of_writing(*arguments):
    """The exit status of a child process that calls write()."""
    process = multiprocessing.get_context("fork").Process(target=write, args=arguments)
    process.start()
    process.join(60)
    return process.exitcode


@pytest.mark.parametrize("ending", ["exit", "raise"])
@pytest.mark.parametrize(("cut_at", "within"), [(1, True), *((number, False) for number in range(1, NUM_CALLS + 1))])
@pytest.mark.parametrize("exists", [True, False])
def test_wherever_it_is_cut_a_reader_finds_the_old_or_the_new_file_whole(exists, cut_at, within, ending, tmp_path):
    path = tmp_path / "file"
    if exists:
        path.write_text(OLD)
    assert status_of_writing(path, cut_at, within, ending) == {"exit": 9, "raise": 1}[ending]
    # Before the last call the file has been replaced.
    expected = NEW if cut_at == NUM_CALLS else OLD if exists else None
    assert (path.read_text() if path.exists() else None) == expected
    if ending == "raise":
        assert {file.name for file in tmp_path.iterdir()} <= {"file"}
    # What a cut has left is in nobody's way.
    assert status_of_writing(path, 0, False, ending) == 0
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"file": NEW}


def test_an_interruption_right_after_the_folder_of_a_part_was_made_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(folder, mkdir=Path.mkdir):
        mkdir(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt), durable.replacing(tmp_path / "samples", is_folder=True):
        pytest.fail("the part is not to be written")
    assert list(tmp_path.iterdir()) == []


def test_the_part_is_on_the_disk_before_the_file_is_replaced_and_the_folder_after(tmp_path, monkeypatch):
    calls = []

    def noting(name, function):
        def noted(file, *arguments):
            path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else file
            calls.append((name, Path(path).name))
            return function(file, *arguments)

        return noted

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, noting(name, getattr(owner, name)))
    durable.write_text(tmp_path / "file", NEW)
    part = f"file{durable.PART}"
    assert calls == [("write_text", part), ("fsync", part), ("replace", part), ("fsync", tmp_path.name)]


@pytest.mark.parametrize("module", ["common/record/records.py", "common/training/checkpoints.py", "common/tracing/chrome.py"])
def test_what_must_survive_a_crash_is_written_so(module):
    text = (ROOT / module).read_text()
    assert "durable." in text
    assert "os.replace" not in text
