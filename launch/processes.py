"""Starting a run and ending it with all its ranks, wherever on this node the launcher has put them."""

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from typing import NamedTuple

import psutil

from common import progress, stalls

# Every process of a run carries this variable, by which it is found again even when it has left its process group.
MARK = "TANDEM_RUN"
KEPT_LINES = 200
GRACE_SECONDS = 5.0


class Outcome(NamedTuple):
    """How a run's processes ended, and the end of what they printed."""

    returncode: int
    timed_out: bool
    last_lines: list[str]


def run(argv, variables, run_id, cwd, time_limit_seconds, hear):
    """Runs a command to its end or to the time limit, with no process of it left behind in any case.

    `hear` is called with each Progress and each Standstill that the run prints. An exception, such as KeyboardInterrupt, ends the
    run before it goes on its way.
    """
    environ = os.environ | variables | {MARK: run_id}
    process = subprocess.Popen(
        argv, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    last_lines = deque(maxlen=KEPT_LINES)
    reader = threading.Thread(target=_read, args=(process.stdout, last_lines, hear), daemon=True)
    reader.start()
    timed_out = False
    try:
        process.wait(timeout=time_limit_seconds)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        end(process, run_id)
    reader.join(timeout=GRACE_SECONDS)
    return Outcome(process.returncode, timed_out, list(last_lines))


def _read(stream, last_lines, hear):
    for line in stream:
        text = line.decode(errors="replace").rstrip()
        if found := progress.read_line(text):
            hear(found)
            continue
        if found := stalls.read_line(text):
            hear(found)
        last_lines.append(text)


def end(process, run_id):
    """Ends a run: its launcher is asked first, so that it can end ranks on other nodes; then what is left here is killed."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE_SECONDS)
    left = processes_of(run_id)
    for one in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(left, timeout=GRACE_SECONDS)
    process.wait()


def processes_of(run_id):
    """The processes on this node that belong to a run."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == run_id:
                found.append(process)
    return found
