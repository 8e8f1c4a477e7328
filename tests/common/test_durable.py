"""Files that are replaced whole, wherever the writing is cut: the order of the calls, and what a reader finds."""

import errno
import itertools
import multiprocessing
import os
from pathlib import Path

import pytest

from common import durable
from tests.support.running import BIN, ROOT, completed

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
    # What a cut has left is in nobody's way, and is removed once it is old.
    for left in tmp_path.glob(f"*{durable.PART}"):
        os.utime(left, (0, 0))
    assert status_of_writing(path, 0, False, ending) == 0
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


@pytest.mark.parametrize("module", ["common/record/files.py", "common/training/checkpoints.py", "common/chrome_trace.py"])
def test_what_must_survive_a_crash_is_written_so(module):
    text = (ROOT / module).read_text()
    assert "durable." in text
    assert "os.replace" not in text


def inode(path):
    return os.lstat(path).st_ino


PROGRAM = "import sys; from pathlib import Path; from common import durable; print('before'); durable.write_text(Path(sys.argv[1]), 'new')"


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_and_what_it_leads_to_is_replaced(is_there, tmp_path):
    path, target = tmp_path / "link", tmp_path / "folder" / "file"
    target.parent.mkdir()
    path.symlink_to(target)
    if is_there:
        target.write_text(OLD)
    durable.write_text(path, NEW)
    assert path.is_symlink()
    assert (target.read_text(), list(target.parent.iterdir())) == (NEW, [target])


@pytest.mark.parametrize(
    ("make", "shell", "printed"),
    [
        ("mknod path c 1 3", "$RUN path", "before\n"),
        ("mkfifo path", "cat path & $RUN path; wait", "before\nnew"),
        # The output of a process is written after what has been printed, though a path would be opened at its start.
        ("ln -s /proc/self/fd/1 path", "$RUN path > out; cat out", "before\nnew"),
        ("touch path", "$RUN path > path; cat path", "before\nnew"),
    ],
)
def test_what_is_no_file_is_written_into(make, shell, printed, tmp_path):
    if "mknod" in make and os.geteuid():
        pytest.skip("only root can make a device")
    assert completed("bash", "-c", make, cwd=tmp_path).returncode == 0
    path = tmp_path / "path"
    before = path.lstat()
    run = {"RUN": f"{BIN / 'python'} program.py", "PYTHONPATH": str(ROOT)}
    (tmp_path / "program.py").write_text(PROGRAM)
    done = completed("bash", "-c", shell, cwd=tmp_path, variables=run)
    assert (sorted(done.stdout), done.stderr) == (sorted(printed), "")
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert {file.name for file in tmp_path.iterdir()} <= {"path", "program.py", "out"}


def test_owner_and_permissions_are_kept(tmp_path):
    path = tmp_path / "file"
    path.write_text(OLD)
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 1234, 1234)
    before = path.stat()
    durable.write_text(path, NEW)
    after = path.stat()
    assert [getattr(after, name) for name in ("st_mode", "st_uid", "st_gid")] == [
        getattr(before, name) for name in ("st_mode", "st_uid", "st_gid")
    ]
    assert path.read_text() == NEW


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
