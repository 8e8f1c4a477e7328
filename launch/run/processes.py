"""Starts a run and ends it with all its ranks, wherever on this node the launcher has put them."""

import contextlib
import functools
import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, final

import psutil

from common.apart import end_with_parent
from common.progress import Progress
from common.ranks import binding, messages
from common.ranks.meeting import MASTER
from common.ranks.messages import Hang, Message, RankEnded, TurnEnded
from common.training import clock
from launch.run import supervisor

NUM_LAST_LINES, MAX_LINE_BYTES = 200, 2**16
# TensorFlow and Keras print these in every run, on every rank: they would push the cause of a failure out of the lines that are kept.
BANNER = re.compile(
    r"$|WARNING: All log messages before absl::InitializeLog|I\d{4} \d\d:\d\d:[\d.]+ +\d+ \S+:\d+\] |To enable the following instructions: "
    r"|WARNING:tensorflow:Callback method .* is slow compared to the batch time"
)
GRACE_SECONDS = 5.0
POLL_SECONDS = 0.2
# Ranks stop within a millisecond of each other.
STOPPING_SECONDS = 0.001
# How often a run that sends no message is looked at.
LOOK_SECONDS = 1.0
# How long a launcher has to end after its first rank has left: torchrun takes half a minute to end the others.
LEAVING_SECONDS = 60.0
# How long all ranks may be stopped within a turn before the run has failed: nothing in a stopped process can report that it hangs.
STOPPED_SECONDS = 10.0
# From how long on this process not having run says that its job was suspended, as by `scontrol suspend` or Ctrl-Z.
SUSPENDED_SECONDS = 3.0


class Outcome(NamedTuple):
    """How a run's processes ended, the end of what they printed, and a cause that none of them can have reported."""

    returncode: int
    timed_out: bool
    last_lines: list[str]
    problem: str | None = None


def run(
    argv: Sequence[str],
    variables: dict[str, str],
    mark: str,
    cwd: Path | None,
    time_limit_seconds: float,
    on_message: Callable[[Progress | Hang | RankEnded], object],
    on_line: Callable[[str], object] = lambda line: None,
    death_signal: int = signal.SIGTERM,
    is_here: bool = True,
) -> Generator[list[int], None, Outcome]:
    """Runs a command to its end or to the time limit, with no process of it left behind in any case, also where this process is killed.

    A generator: it yields the process IDs of the ranks when they have stopped themselves at the end of their turn, continues them when it
    is resumed, and returns the Outcome. Closing it ends the run, and so does an exception, such as KeyboardInterrupt, before it is passed
    on. All processes of the run carry `mark`, which no other run has. A run whose ranks report a hang is ended when its launcher has had
    its time to do so: torchrun takes half a minute. `on_message` is called with each message of the run but TurnEnded, `on_line` with all
    other lines. The time limit leaves out the time between turns. A run whose ranks are all stopped within a turn has failed.
    `death_signal`: what the kernel sends to the launcher when this process ends, also where the supervisor was killed. `is_here`: whether
    all of its processes are on this node, where they have a temporary folder of their own, which goes with the run.
    """
    # Runs side by side would all meet at the port that a job script has exported.
    passed_on = {name: value for name, value in binding.without_owned_variables(os.environ).items() if name not in MASTER}
    environ = passed_on | variables | {supervisor.MARK: mark}
    last_lines: deque[str] = deque(maxlen=NUM_LAST_LINES)
    signals: queue.SimpleQueue[Message] = queue.SimpleQueue()
    read_end, write_end = os.pipe()
    output = open(read_end, "rb")  # noqa: SIM115
    secret = variables.get(messages.VARIABLE, "")
    reader = threading.Thread(target=_read, args=(output, secret, last_lines, on_message, on_line, signals), daemon=True)
    begun, processes = time.time(), _Processes(mark)
    with contextlib.ExitStack() as until_end:
        temporary = until_end.enter_context(tempfile.TemporaryDirectory(prefix="tandem-", ignore_cleanup_errors=True))
        environ |= {"TMPDIR": temporary} if is_here else {}
        # The supervisor starts before the run, so that there is no moment at which the run could be left alone.
        paths = filter(None, [temporary, variables.get(clock.TURNS_FILE_VARIABLE)])
        until_end.enter_context(supervisor.supervised(mark, GRACE_SECONDS, output, paths))
        with open(write_end, "wb") as pipe:
            process = subprocess.Popen(
                argv, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, start_new_session=True,
                # A system call alone, which needs no lock that another thread of this process may have held when it was copied.
                preexec_fn=functools.partial(end_with_parent, death_signal),  # noqa: PLW1509
            )  # fmt: skip
        reader.start()
        try:
            deadline = time.monotonic() + time_limit_seconds
            while pids := _turn(process, deadline, signals, processes):
                stopped_at = time.monotonic()
                yield pids
                deadline += time.monotonic() - stopped_at
                supervisor.proceed(pids)
            timed_out, problem = pids is None, processes.problem or _describe_killed(argv[0], process)
        finally:
            supervisor.end(mark, GRACE_SECONDS, begun)
            # The environment of the launcher, and so its mark, may not be readable.
            process.kill()
            process.wait()
    reader.join(timeout=GRACE_SECONDS)
    return Outcome(process.returncode, timed_out, list(last_lines), problem)


@final
class _Processes:
    """The processes of a run, as they look from outside, and why they hang, as `problem`.

    A run is looked for among the processes of this node until it begins to train, and its ranks alone afterwards: that takes no time.
    """

    def __init__(self, mark: str) -> None:
        self.problem: str | None = None
        self._mark, self._is_training = mark, False
        self._names: dict[int, str] = {}
        self._ranks: list[int] = []

    def begin_training(self, ranks: Iterable[int] = ()) -> None:
        """Looks for the processes of the run for the last time. `ranks`: their process IDs, where the run has sent them."""
        if not self._is_training:
            self._find()
            self._ranks, self._is_training = list(ranks) or self._ranks, True

    def include(self, pids: Iterable[int]) -> bool:
        """Returns whether all of these are processes of the run."""
        return set(pids) <= {*self._ranks} or set(pids) <= {*supervisor.processes_of(self._mark)}

    def next(self, signals: queue.SimpleQueue[Message]) -> Message | None:
        """Returns the next of signals, if there is one soon. Where that takes too long, this process and its job were suspended."""
        begun = time.monotonic()
        try:
            return signals.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return None
        finally:
            if (seconds := time.monotonic() - begun) >= SUSPENDED_SECONDS:
                self.problem = f"suspended for {seconds:.0f} s, which its clock cannot tell from training"

    def wait_for_end(self, process: subprocess.Popen[bytes], message: Hang | RankEnded) -> None:
        """Waits until the launcher has ended after a message that a rank leaves, but not for ever."""
        seconds = GRACE_SECONDS if isinstance(message, Hang) else LEAVING_SECONDS
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            if message == RankEnded(None):
                cause = "as where a process that a rank has started holds its output"
                self.problem = f"the launcher had not ended {seconds:.0f} s after the run had completed, {cause}"

    def stopped(self, launcher: int) -> str | None:
        """Describes what has ended or was stopped, of which nothing else can report; None where the run goes on."""
        if not self._is_training:
            self._find()
        if ended := [f"{name} (pid {pid})" for pid, name in self._names.items() if not supervisor.status_of(pid)]:
            return f"{' and '.join(ended)}, which starts ranks and passes their output on, has ended"
        states = {supervisor.status_of(pid) for pid in self._ranks}
        are_stopped = psutil.STATUS_STOPPED in states and states <= {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, None}
        is_stopped = supervisor.status_of(launcher) == psutil.STATUS_STOPPED
        who = f"the launcher (pid {launcher}) was" if is_stopped else "all ranks were"
        return f"{who} stopped for {STOPPED_SECONDS:.0f} s by a process outside the run" if is_stopped or are_stopped else None

    def _find(self) -> None:
        pids = supervisor.processes_of(self._mark)
        self._ranks = supervisor.ranks_among(pids)
        self._names = supervisor.helpers_among(pids)


def _describe_killed(program: str, process: subprocess.Popen[bytes]) -> str | None:
    """Describes that a signal ended a launcher; None where none did, or where it has not ended."""
    if (status := process.poll()) is None or status >= 0:
        return None
    return f"the launcher {os.path.basename(program)} (pid {process.pid}) was killed by {signal.Signals(-status).name}"


def _turn(
    process: subprocess.Popen[bytes], deadline: float, signals: queue.SimpleQueue[Message], processes: _Processes
) -> list[int] | None:
    """Waits for the end of a turn. Returns the process IDs of the ranks when they have stopped; [] where the run ended or has a problem.

    Returns None where the deadline has passed. `signals` has the first Progress, and all other messages.
    """
    looked_at = moved_at = time.monotonic()
    while process.poll() is None and not processes.problem:
        if time.monotonic() > deadline:
            return None
        if (message := processes.next(signals)) is None:
            if (now := time.monotonic()) - looked_at < LOOK_SECONDS:
                continue
            looked_at = now
            if not (stopped := processes.stopped(process.pid)):
                moved_at = now
            elif now - moved_at >= STOPPED_SECONDS:
                processes.problem = stopped
        elif isinstance(message, Progress):
            processes.begin_training()
        elif isinstance(message, Hang | RankEnded):
            processes.wait_for_end(process, message)
            return []
        elif processes.include(message.pids):
            while any(supervisor.is_running(pid) for pid in message.pids):
                if time.monotonic() > deadline:
                    return None
                time.sleep(STOPPING_SECONDS)
            processes.begin_training(message.pids)
            return message.pids
    return []


def _read(
    output: BinaryIO,
    secret: str,
    last_lines: deque[str],
    on_message: Callable[[Progress | Hang | RankEnded], object],
    on_line: Callable[[str], object],
    signals: queue.SimpleQueue[Message],
) -> None:
    """Reads what a run prints, to its end: passes messages and other lines on, and puts the signals into their queue."""
    has_progress = False
    with output:
        for line in _lines(output):
            message = messages.read_line(line, secret)
            if message is None:
                if not BANNER.match(line):
                    last_lines.append(line)
                on_line(line)
                continue
            if not isinstance(message, TurnEnded):
                on_message(message)
            if not (has_progress and isinstance(message, Progress)):
                signals.put(message)
            has_progress |= isinstance(message, Progress)


def _lines(output: BinaryIO) -> Iterator[str]:
    """Reads lines, of which MAX_LINE_BYTES are kept in memory."""
    while raw_line := output.readline(MAX_LINE_BYTES):
        end = raw_line
        while not end.endswith(b"\n") and (end := output.readline(MAX_LINE_BYTES)):
            pass
        yield raw_line.decode(errors="replace").rstrip()
