"""The processes of a run on this node: found by their mark, and ended with their files, also when the matrix that started them was killed.

Beside each run runs `python -I launch/run/supervisor.py RUN GRACE_SECONDS PATH…`. Its standard input is a pipe from the matrix, which the
kernel closes with the matrix, however that ends. It imports little, so that it takes no time from the run that starts beside it.

A subreaper (PR_SET_CHILD_SUBREAPER) finds them without a mark, but has to start the run: if it were killed, the run would fail, and nobody
would find a process of the run that has a session of its own.
"""

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

# Every process of a run carries this variable, by which it is found again even when it has left its process group.
MARK = "TANDEM_RUN"
POLL_SECONDS = 0.05
# The states of a process that was stopped by a signal, or has ended and is not waited for.
STOPPED = {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
# Memory that the processes of a run share. A library that is killed does not remove it, and a container has 64 MB of it. The names are
# those of MPICH, Intel MPI, Open MPI, UCX and NCCL: users may keep their data in this folder too.
SHARED_MEMORY = Path("/dev/shm")
OF_LIBRARIES = re.compile(r"mpich_shm_|Intel_MPI_|(?:vader|sm)_segment\.|ucx_shm_posix_|nccl-")


@contextlib.contextmanager
def supervised(run: str, grace_seconds: float, output: io.BufferedReader, paths: Iterable[str]) -> Iterator[None]:
    """Within this context a run is ended, and its files and folders are removed, when this process is gone. `run` is the value of the mark.

    `output` is the file into which the run prints. The supervisor holds it open too: a rank that printed into a pipe without a reader
    would fail, and record this failure, before it is ended.
    """
    command = [sys.executable, "-I", os.path.abspath(__file__), run, str(grace_seconds), *paths]
    # It has a session of its own, since it must outlive what a terminal, or a signal to the group, does to the matrix.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        pass_fds=[output.fileno()],
    )  # fmt: skip
    assert process.stdin, "standard input is a pipe"
    try:
        yield
    finally:
        process.stdin.close()
        process.wait()


def marked() -> dict[int, str]:
    """Finds the processes on this node that belong to a run, the oldest first, each with its run."""
    # Processes end while they are looked at, and those of other users cannot be read.
    processes = [process.info for process in psutil.process_iter(["pid", "create_time", "environ"])]
    processes = [info for info in processes if MARK in (info["environ"] or ())]
    return {info["pid"]: info["environ"][MARK] for info in sorted(processes, key=lambda info: (info["create_time"], info["pid"]))}


def processes_of(run: str) -> list[int]:
    """Returns the numbers of the processes on this node that belong to a run, the oldest first."""
    return [pid for pid, run_of_pid in marked().items() if run_of_pid == run]


def ranks_among(pids: list[int]) -> list[int]:
    """Returns those of a run's processes, the oldest first, that are its ranks: neither the launcher nor the parent of another one."""
    parents = set()
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            parents.add(psutil.Process(pid).ppid())
    return [pid for pid in pids[1:] if pid not in parents]


def helpers_among(pids: list[int]) -> dict[int, str]:
    """Returns the names of those of a run's processes, the oldest first, by which its launcher starts ranks: programs other than Python."""
    helpers: dict[int, str] = {}
    for pid in pids[1:]:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.ppid() in (pids[0], *helpers) and not os.path.basename(process.exe()).startswith("python"):
                helpers[pid] = process.name()
    return helpers


def remove_shared_memory(since: float) -> None:
    """Removes the files OF_LIBRARIES that this user has made since a time, in seconds since 1970, and that no process uses any more.

    A process that is killed before it is looked at, as where this memory is full, leaves one too.
    """
    unused = set()
    for path in SHARED_MEMORY.glob("*"):
        with contextlib.suppress(OSError):
            about = path.stat()
            if OF_LIBRARIES.match(path.name) and about.st_uid == os.geteuid() and about.st_ctime >= since:
                unused.add(path)
    for pid in psutil.pids() if unused else ():
        # A file is open until it is mapped: whoever looks in this order misses none.
        with contextlib.suppress(psutil.Error, OSError):
            opened = {file.path for file in psutil.Process(pid).open_files()}
            mapped = Path(f"/proc/{pid}/maps").read_text(errors="replace")
            unused = {path for path in unused if str(path) not in opened and str(path) not in mapped}
    for path in unused:
        path.unlink(missing_ok=True)


def end(run: str, grace_seconds: float, since: float) -> None:
    """Ends a run that has begun at a time, in seconds since 1970, and removes the memory that its processes have shared.

    Its launcher is asked first, so that it can end ranks on other nodes; then what is left here is killed.
    """
    if pids := processes_of(run):
        # All others are descendants of the launcher.
        _terminate(pids[0], pids)
        _wait_for(lambda: pids[0] not in processes_of(run), grace_seconds)
    _wait_for(lambda: _kill(run), grace_seconds)
    # While a process becomes another program (execve) it has no environment for a moment, and is not found.
    time.sleep(POLL_SECONDS)
    _wait_for(lambda: _kill(run), grace_seconds)
    remove_shared_memory(since)


def _terminate(launcher: int, pids: list[int]) -> None:
    """Sends SIGTERM to the launcher and to what runs in its process group."""
    with contextlib.suppress(OSError):
        group = os.getpgid(launcher)
        for pid in pids:
            if os.getpgid(pid) == group:
                os.kill(pid, signal.SIGTERM)
    # Only SIGKILL ends a process that has stopped between its turns.
    proceed(pids)


def _kill(run: str) -> bool:
    """Kills what is left of a run, and tells whether nothing was left."""
    pids = processes_of(run)
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return not pids


def proceed(pids: Iterable[int]) -> None:
    """Continues processes that have stopped."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def is_running(pid: int) -> bool:
    """Returns whether a process is there and has not stopped."""
    return status_of(pid) not in STOPPED | {None}


def status_of(pid: int) -> str | None:
    """Returns psutil's name of a process's state; None where there is no process of this number."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status()
    return None


def _wait_for(condition: Callable[[], bool], limit_seconds: float) -> None:
    deadline = time.monotonic() + limit_seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def main(run: str, grace_seconds: str, *paths: str) -> None:
    """Waits until the other end of standard input is closed, ends the run and removes its files and folders."""
    os.read(0, 1)
    end(run, float(grace_seconds), psutil.Process().create_time())
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
