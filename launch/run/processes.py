"""Starts a run and ends it with all its ranks, wherever on this node the launcher has put them."""

import contextlib
import os
import queue
import re
import subprocess
import threading
import time
from collections import deque
from typing import NamedTuple

from common import progress
from common.process import turns, watchdog
from common.process.rendezvous import MASTER
from common.process.watchdog import Hang
from launch.run import supervisor

KEPT_LINES = 200
# What TensorFlow and Keras print in every run, on every rank: it would push the cause of a failure out of the lines that are kept.
BANNER = re.compile(
    r"WARNING: All log messages before absl::InitializeLog|I\d{4} \d\d:\d\d:[\d.]+ +\d+ \S+:\d+\] |To enable the following instructions: "
    r"|WARNING:tensorflow:Callback method .* is slow compared to the batch time"
)
GRACE_SECONDS = 5.0
POLL_SECONDS = 0.2
# Ranks stop within a millisecond of each other.
STOPPING_SECONDS = 0.001


class Outcome(NamedTuple):
    """How a run's processes ended, and the end of what they printed."""

    returncode: int
    timed_out: bool
    last_lines: list[str]


def run(argv, variables, mark, cwd, time_limit_seconds, on_message, on_line=lambda line: None):
    """Runs a command to its end or to the time limit, with no process of it left behind in any case, also where this process is killed.

    A generator: it yields the process IDs of the ranks when they have stopped themselves at the end of their turn, continues them when it
    is resumed, and returns the Outcome. Closing it ends the run, and so does an exception, such as KeyboardInterrupt, before it is passed
    on. All processes of the run carry `mark`, which no other run has. A run whose ranks report a hang is ended when its launcher has had
    its time to do so: torchrun takes half a minute. `on_message` is called with each Progress and each Hang that the run prints, `on_line`
    with all other lines and with those of a Hang. The time limit leaves out the time between turns.
    """
    # Runs side by side would all meet at the port that a job script has exported.
    inherited = {name: value for name, value in os.environ.items() if name not in MASTER}
    environ = inherited | variables | {supervisor.MARK: mark}
    last_lines, signals = deque(maxlen=KEPT_LINES), queue.SimpleQueue()
    read_end, write_end = os.pipe()
    output = open(read_end, "rb")  # noqa: SIM115
    reader = threading.Thread(target=_read, args=(output, last_lines, on_message, on_line, signals), daemon=True)
    # The supervisor is there before the run is, so that there is no moment at which the run could be left alone.
    with supervisor.supervised(mark, GRACE_SECONDS, output):
        with open(write_end, "wb") as pipe:
            process = subprocess.Popen(
                argv, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, start_new_session=True
            )
        reader.start()
        try:
            deadline = time.monotonic() + time_limit_seconds
            while pids := _turn(process, deadline, signals):
                stopped_at = time.monotonic()
                yield pids
                deadline += time.monotonic() - stopped_at
                supervisor.proceed(pids)
            timed_out = pids is None
        finally:
            supervisor.end(mark, GRACE_SECONDS)
            # For a launcher whose environment cannot be read, and so not its mark.
            process.kill()
            process.wait()
    reader.join(timeout=GRACE_SECONDS)
    return Outcome(process.returncode, timed_out, list(last_lines))


def _turn(process, deadline, signals):
    """Waits for the end of a turn. Returns the process IDs of the ranks when they have stopped; [] where the run ended.

    None: the deadline has passed. `signals` has a list of process IDs for a turn that ends, and a Hang.
    """
    while process.poll() is None:
        if time.monotonic() > deadline:
            return None
        with contextlib.suppress(queue.Empty):
            signal = signals.get(timeout=POLL_SECONDS)
            if isinstance(signal, Hang):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=GRACE_SECONDS)
                return []
            while any(supervisor.is_running(pid) for pid in signal):
                if time.monotonic() > deadline:
                    return None
                time.sleep(STOPPING_SECONDS)
            return signal
    return []


def _read(output, last_lines, on_message, on_line, signals):
    with output:
        for raw_line in output:
            line = raw_line.decode(errors="replace").rstrip()
            if message := progress.read_line(line):
                on_message(message)
                continue
            if pids := turns.read_line(line):
                signals.put(pids)
                continue
            if hang := watchdog.read_line(line):
                on_message(hang)
                signals.put(hang)
            if not BANNER.match(line):
                last_lines.append(line)
            on_line(line)
