"""Watchdog: a thread that reports a hang of its rank, with the step and the stack of the main thread, and ends the process."""

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

from common.process import messages
from common.process.messages import Hang, Place

TICK_SECONDS = 1.0
# Before exiting, because the launcher ends all ranks when the first one exits.
SECONDS_FOR_OTHERS = 3.0
NUM_FRAMES = 20
JOIN_SECONDS = 60.0


class Late(NamedTuple):
    """A rank that has waited some seconds for the other ranks; `where` is such as `over MPI`."""

    rank: int
    where: str
    seconds: float

    def __str__(self) -> str:
        return f"rank {self.rank}: not all ranks have joined {self.where} after {self.seconds:.0f} s (--join-timeout)"


def leave(problem: Hang | Late) -> None:
    """Reports this rank's problem, a hang with the stack of its main thread; ends the process with exit status 1."""
    print(f"error: {problem}\n{_stack() if isinstance(problem, Hang) else ''}", end="", file=sys.stderr, flush=True)
    if isinstance(problem, Hang):
        messages.send(problem)
    time.sleep(SECONDS_FOR_OTHERS)
    os._exit(1)


def _stack() -> str:
    """Formats the last frames of the main thread."""
    identifier = threading.main_thread().ident
    return "" if identifier is None else "".join(traceback.format_stack(sys._current_frames()[identifier])[-NUM_FRAMES:])


class Watchdog:
    """Calls on_hang once with this rank's Hang, from a separate thread, after timeout_seconds without a heartbeat; 0: never.

    It counts ticks instead of reading a clock, so that time in which this process was stopped does not count. `on_hang` is called with
    Late instead where the rank has waited `join_seconds` for other ranks to join; 0: never.
    """

    def __init__(
        self, timeout_seconds: float, rank: int, on_hang: Callable[[Hang | Late], object] = leave, join_seconds: float = JOIN_SECONDS
    ) -> None:
        self.rank, self.on_hang = rank, on_hang
        self.place: Place | str = Place()
        self._idle_seconds, self._join_seconds = 0.0, join_seconds
        if timeout_seconds:
            threading.Thread(target=self._run, args=(timeout_seconds,), daemon=True).start()

    def begin(self, place: Place | str) -> None:
        """Notes that a step at a Place begins, or an activity in words, such as `in all_reduce of 8 bytes over mpi`; also a heartbeat."""
        self.place = place
        self.heartbeat()

    def heartbeat(self) -> None:
        """Notes that the rank has made progress."""
        self._idle_seconds = 0.0

    @contextlib.contextmanager
    def joining(self, where: Callable[[], str]) -> Iterator[None]:
        """Within this context the rank waits for others to join it, up to the time limit. `where` is called when that has passed."""
        is_over = threading.Event()
        if self._join_seconds:
            threading.Thread(target=self._limit_joining, args=(where, is_over), daemon=True).start()
        try:
            yield
        finally:
            is_over.set()
            self.heartbeat()

    def _limit_joining(self, where: Callable[[], str], is_over: threading.Event) -> None:
        seconds = 0.0
        while seconds < self._join_seconds:
            if is_over.wait(TICK_SECONDS):
                return
            seconds += TICK_SECONDS
            self.heartbeat()
        self.on_hang(Late(self.rank, where(), seconds))

    def _run(self, timeout_seconds: float) -> None:
        while self._idle_seconds < timeout_seconds:
            time.sleep(TICK_SECONDS)
            self._idle_seconds += TICK_SECONDS
        self.on_hang(Hang(self.rank, self.place, self._idle_seconds))


# The watchdog of this process, once it has begun one.
_of_process: list[Watchdog] = []


def begin(
    timeout_seconds: float, rank: int, on_hang: Callable[[Hang | Late], object] = leave, join_seconds: float = JOIN_SECONDS
) -> Watchdog:
    """Begins the Watchdog of this process."""
    _of_process[:] = [Watchdog(timeout_seconds, rank, on_hang, join_seconds)]
    return _of_process[0]


def joining(where: Callable[[], str]) -> contextlib.AbstractContextManager[None]:
    """Is Watchdog.joining of the Watchdog of this process, where it has begun one."""
    return _of_process[0].joining(where) if _of_process else contextlib.nullcontext()
