"""Starting a run and ending it with all its ranks, wherever on this node the launcher has put them."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from typing import NamedTuple

import psutil

from common import progress, stalls

# Every process of a run carries this variable, by which it is found again even when it has left its process group.
MARK = "TANDEM_RUN"
KEPT_LINES = 200
GRACE_SECONDS = 5.0
POLL_SECONDS = 0.2


class Outcome(NamedTuple):
    """How a run's processes ended, and the end of what they printed."""

    returncode: int
    timed_out: bool
    last_lines: list[str]


def run(argv, variables, run_id, cwd, time_limit_seconds, hear):
    """Runs a command to its end or to the time limit, with no process of it left behind in any case.

    A run whose ranks tell that they stand still is ended when its launcher has had its time to do so: torchrun takes half a minute.
    `hear` is called with each Progress and each Standstill that the run prints. An exception, such as KeyboardInterrupt, ends the
    run before it goes on its way.
    """
    environ = os.environ | variables | {MARK: run_id}
    process = subprocess.Popen(
        argv, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    last_lines = deque(maxlen=KEPT_LINES)
    stands_still = threading.Event()
    reader = threading.Thread(target=_read, args=(process.stdout, last_lines, hear, stands_still), daemon=True)
    reader.start()
    try:
        timed_out = not _is_over(process, time.monotonic() + time_limit_seconds, stands_still)
    finally:
        end(process, run_id)
    reader.join(timeout=GRACE_SECONDS)
    return Outcome(process.returncode, timed_out, list(last_lines))


def _is_over(process, deadline, stands_still):
    """Waits, and tells whether the run came to its end, or to a standstill, before the deadline."""
    while process.poll() is None:
        if time.monotonic() > deadline:
            return False
        if stands_still.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=GRACE_SECONDS)
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=POLL_SECONDS)
    return True


def _read(stream, last_lines, hear, stands_still):
    for line in stream:
        text = line.decode(errors="replace").rstrip()
        if found := progress.read_line(text):
            hear(found)
            continue
        if found := stalls.read_line(text):
            hear(found)
            stands_still.set()
        last_lines.append(text)


def end(process, run_id):
    """Ends a run: its launcher is asked first, so that it can end ranks on other nodes; then what is left here is killed."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE_SECONDS)
    process.kill()
    # Were psutil to wait for the launcher, its exit status would be lost to Popen, which then says 0.
    process.wait()
    left = processes_of(run_id)
    for one in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(left, timeout=GRACE_SECONDS)


def processes_of(run_id):
    """The processes on this node that belong to a run."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == run_id:
                found.append(process)
    return found
