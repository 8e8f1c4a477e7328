"""Starting a run and ending it with all its ranks, wherever on this node the launcher has put them."""

import contextlib
import os
import subprocess
import threading
import time
from collections import deque
from typing import NamedTuple

from common import progress
from common.process import watchdog
from launch import supervisor

KEPT_LINES = 200
GRACE_SECONDS = 5.0
POLL_SECONDS = 0.2


class Outcome(NamedTuple):
    """How a run's processes ended, and the end of what they printed."""

    returncode: int
    timed_out: bool
    last_lines: list[str]


def run(argv, variables, mark, cwd, time_limit_seconds, on_message):
    """Runs a command to its end or to the time limit, with no process of it left behind in any case, also where this process is killed.

    All its processes carry `mark`, which no other run has. A run whose ranks report a hang is ended when its launcher has had its
    time to do so: torchrun takes half a minute. `on_message` is called with each Progress and each Hang that the run prints. An
    exception, such as KeyboardInterrupt, ends the run before it is passed on.
    """
    environ = os.environ | variables | {supervisor.MARK: mark}
    last_lines = deque(maxlen=KEPT_LINES)
    hung = threading.Event()
    reading, writing = os.pipe()
    output = open(reading, "rb")  # noqa: SIM115
    reader = threading.Thread(target=_read, args=(output, last_lines, on_message, hung), daemon=True)
    # The supervisor is there before the run is, so that there is no moment at which the run could be left alone.
    with supervisor.supervised(mark, GRACE_SECONDS, output):
        with open(writing, "wb") as end_of_pipe:
            process = subprocess.Popen(
                argv, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stdout=end_of_pipe, stderr=subprocess.STDOUT, start_new_session=True
            )
        reader.start()
        try:
            timed_out = not _is_over(process, time.monotonic() + time_limit_seconds, hung)
        finally:
            supervisor.end(mark, GRACE_SECONDS)
            # For a launcher whose environment cannot be read, and so not its mark.
            process.kill()
            process.wait()
    reader.join(timeout=GRACE_SECONDS)
    return Outcome(process.returncode, timed_out, list(last_lines))


def _is_over(process, deadline, hung):
    """Waits. Returns whether the run came to its end, or to a hang, before the deadline."""
    while process.poll() is None:
        if time.monotonic() > deadline:
            return False
        if hung.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=GRACE_SECONDS)
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=POLL_SECONDS)
    return True


def _read(output, last_lines, on_message, hung):
    with output:
        for line in output:
            text = line.decode(errors="replace").rstrip()
            if found := progress.read_line(text):
                on_message(found)
                continue
            if found := watchdog.read_line(text):
                on_message(found)
                hung.set()
            last_lines.append(text)
