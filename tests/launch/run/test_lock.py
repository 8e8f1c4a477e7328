"""One matrix at a time on a machine: the second one stops, unless it is to share the machine."""

import contextlib
import multiprocessing
import os
import re
import tempfile
from pathlib import Path

import pytest

from common.config import Settings
from common.errors import UserError
from launch.launchers.commands import ALLOCATIONS
from launch.run import available, lock
from launch.run.plan import Job
from tests.support.forked import run_module

ON_ONE_NODE, ON_TWO_NODES = ([Job("ddp", 2, ranks_per_node, Settings())] for ranks_per_node in (2, 1))
MATRIX = ("1", "--workloads", "cnn", "--backends", "single")


@pytest.fixture
def path(tmp_path, monkeypatch):
    """The lock that this process and its children use."""
    for name in ALLOCATIONS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(lock.VARIABLE, str(tmp_path / "lock"))
    return tmp_path / "lock"


@contextlib.contextmanager
def holder(folder):
    """Another process that holds the lock for records in a folder."""
    parent_end, child_end = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=hold, args=(folder, child_end))
    process.start()
    child_end.close()
    try:
        assert parent_end.recv() == "held"
        yield process
    finally:
        process.kill()
        process.join()


def hold(folder, connection):
    with lock.locked(folder, ON_ONE_NODE, False):
        connection.send("held")
        connection.recv()


@pytest.mark.parametrize(
    ("jobs", "variables", "expected"),
    [
        # One for all users.
        (ON_ONE_NODE, {}, lock.PATH),
        ([], {lock.VARIABLE: "/elsewhere"}, "/elsewhere"),
        (ON_ONE_NODE, {lock.VARIABLE: "/elsewhere", "SLURM_JOB_ID": "7"}, "/results/here/.matrix-7902699be42c8a8e.lock"),
        (ON_TWO_NODES, {"PBS_JOBID": "local:///8"}, "/results/here/.matrix-99dffc481efd65cb.lock"),
        (ON_TWO_NODES, {"SLURM_JOB_ID": ""}, "/results/here/.matrix-nodes.lock"),
    ],
)
def test_the_lock_is_the_machines_or_in_the_results_of_an_allocation(jobs, variables, expected, path, monkeypatch):
    monkeypatch.delenv(lock.VARIABLE)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert lock.path_of(Path("/results/here"), jobs) == Path(expected)


def test_the_second_one_names_the_one_that_runs_until_that_is_killed(path, tmp_path):
    with holder(Path("/their/results")) as process:
        with pytest.raises(UserError) as stopped, lock.locked(tmp_path, ON_ONE_NODE, False):
            pass
        message = str(stopped.value)
        assert re.search(rf"pid {process.pid} on \S+, since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d, results in /their/results\)", message)
        assert ("--share-machine" in message, "\n" in message) == (True, False)
        process.kill()
        process.join()
        with lock.locked(tmp_path, ON_ONE_NODE, False):
            assert path.read_text().startswith(f"pid {os.getpid()} ")


def test_looking_for_another_one_makes_no_file(path, tmp_path):
    for jobs in (ON_ONE_NODE, ON_TWO_NODES):
        lock.expect_free(tmp_path / "results", jobs, False)
    assert list(tmp_path.iterdir()) == []


def test_who_shares_the_machine_goes_on_and_leaves_the_lock_to_the_first(path, tmp_path):
    with holder(Path("/their/results")):
        before = path.read_text()
        with lock.locked(tmp_path, ON_ONE_NODE, True):
            assert path.read_text() == before
    first, second = (lock.locked(tmp_path, ON_ONE_NODE, share) for share in (True, False))
    with first, pytest.raises(UserError, match=f"pid {os.getpid()}"), second:
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="takes two users, and so root")
@pytest.mark.parametrize("is_free", [True, False])
def test_two_users_share_the_lock(is_free, path, monkeypatch):
    with tempfile.TemporaryDirectory() as folder:
        # As /tmp is: writable for all, and sticky.
        os.chmod(folder, 0o1777)
        monkeypatch.setenv(lock.VARIABLE, f"{folder}/lock")
        with holder(Path("/their/results")) as process:
            if is_free:
                process.kill()
                process.join()
            assert status_of_another_user() == (0 if is_free else 2)


def status_of_another_user():
    """The exit status of a process of another user that takes the lock: 0 if it gets it, 2 if another matrix has it."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.setuid(65534)
            with lock.locked(Path("/my/results"), ON_ONE_NODE, False):
                status = 0
        except UserError as problem:
            status = 2 if "/their/results" in str(problem) else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("name", ["folder", "link", "x" * 5000, "there/is none"])
def test_what_cannot_be_a_lock_is_named_in_a_line_and_not_changed(name, path, tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "linked").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "linked")
    monkeypatch.setenv(lock.VARIABLE, str(tmp_path / name))
    with pytest.raises(UserError, match="cannot be opened") as stopped, lock.locked(tmp_path, ON_ONE_NODE, False):
        pass
    assert len(str(stopped.value)) < 500
    assert (tmp_path / "linked").read_text() == "kept"


# For each, the whole of what is shown of it.
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pid 7 on host\n\x1b[2Jsecond line", "(pid 7 on host)"),
        ("x" * 100_000, f"({'x' * lock.TEXT_BYTES})"),
        ("", "(it has just begun)"),
    ],
)
def test_of_another_ones_text_a_printable_line_is_shown(text, shown, path, tmp_path):
    with holder(Path("/their/results")):
        path.write_text(text)
        with pytest.raises(UserError) as stopped:
            lock.expect_free(tmp_path, ON_ONE_NODE, False)
    assert f"another matrix is running here {shown}; wait" in str(stopped.value)
    assert str(stopped.value).isprintable()


@pytest.mark.parametrize(
    ("program", "status", "is_stopped"),
    [
        (("launch.matrix", *MATRIX), 2, True),
        # It goes on, and then no backend can run.
        (("launch.matrix", *MATRIX, "--share-machine"), 2, False),
        (("launch.matrix", *MATRIX, "--dry-run"), 0, False),
    ],
)
def test_the_matrix_takes_the_lock_and_a_dry_run_does_not(program, status, is_stopped, path, tmp_path, monkeypatch):
    monkeypatch.setattr(available, "ask_for", lambda jobs, launcher: {})
    monkeypatch.setattr(available, "runnable_by", lambda answers, jobs: ([], {}))
    with holder(Path("/their/results")) as process:
        ended, _, error = run_module(*program, "--results", tmp_path, "--machine", "here", **{lock.VARIABLE: str(path)})
    assert ended == status, error
    assert (f"pid {process.pid}" in error, "none of these backends" in error) == (is_stopped, status == 2 and not is_stopped)
    assert not is_stopped or error.count("\n") == 1
