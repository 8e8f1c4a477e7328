"""Files that are replaced whole, wherever the writing is cut: the order of the calls, and what a reader finds."""

import errno
import itertools
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from common import durable
from common.data import stored
from common.training import checkpoints
from frameworks.shared.deepspeed import configuration
from launch.launchers import hosts
from launch.trace import profile
from tests.support.mistakes import refused

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
def test_wherever_it_is_cut_a_reader_finds_the_old_or_the_new_file_whole(cut_at, within, ending, tmp_path):
    path = tmp_path / "file"
    path.write_text(OLD)
    assert status_of_writing(path, cut_at, within, ending) == {"exit": 9, "raise": 1}[ending]
    # Before the last call the file has been replaced.
    assert path.read_text() == (NEW if cut_at == NUM_CALLS else OLD)
    if ending == "raise":
        assert {file.name for file in tmp_path.iterdir()} <= {"file"}
    # What a cut has left is in nobody's way.
    assert status_of_writing(path, 0, False, ending) == 0
    durable.remove_parts(path)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"file": NEW}


def test_the_part_is_on_the_disk_before_the_file_is_replaced_and_the_folder_after(tmp_path, monkeypatch):
    calls = []

    def noting(name, function):
        def noted(file, *arguments, **named):
            path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else file
            calls.append((name, Path(path).name))
            return function(file, *arguments, **named)

        return noted

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, noting(name, getattr(owner, name)))
    durable.write_text(tmp_path / "file", NEW)
    part = calls[0][1]
    assert part.startswith("file.")
    assert part.endswith(durable.PART)
    assert calls == [("write_text", part), ("fsync", part), ("replace", part), ("fsync", tmp_path.name)]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_and_permissions_stay_and_what_it_leads_to_is_replaced(is_there, tmp_path):
    path, target = tmp_path / "link", tmp_path / "folder" / "file"
    target.parent.mkdir()
    path.symlink_to(target)
    if is_there:
        target.write_text(OLD)
        target.chmod(0o640)
    with durable.replacing(path) as temporary:
        # A library writes a file of its own, which others cannot read.
        temporary.unlink()
        temporary.touch(0o600)
        temporary.write_text(NEW)
    assert path.is_symlink()
    assert not is_there or stat.S_IMODE(target.stat().st_mode) == 0o640
    assert (target.read_text(), list(target.parent.iterdir())) == (NEW, [target])


def test_a_pipe_is_not_replaced_but_gets_the_text(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    durable.expect_writable(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    durable.write_text(path, "new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert path.is_fifo()


def test_writers_of_one_file_at_once_do_not_meet(tmp_path):
    path = tmp_path / ("x" * 251 + ".csv")
    with durable.replacing(path) as first, durable.replacing(path) as second:
        assert first != second
        first.write_text(OLD)
        second.write_text(NEW)
    assert (path.read_text(), list(tmp_path.iterdir())) == (OLD, [path])


def test_a_full_device_is_an_error_that_names_it(tmp_path):
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(OSError) as raised:
        durable.write_text(tmp_path / "full", NEW)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(tmp_path / "full"))


def test_what_has_no_end_or_no_writer_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            durable.read_bytes(path)
        for read in (hosts.hosts_in, configuration.of_file, profile.read, checkpoints.read):
            with refused("not a regular file"):
                read(path)
    with pytest.raises(OSError, match="not a regular file"):
        stored._open(tmp_path, "npy")
