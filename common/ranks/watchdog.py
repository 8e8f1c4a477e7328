"""Watchdog: a thread that finds a hang of its rank, or that others do not join it. What it then does is in common/ranks/ending.py."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from common.ranks.messages import Hang, Position

TICK_SECONDS = 1.0
JOIN_SECONDS = 60.0


class Late(NamedTuple):
    """A rank that has waited some seconds for the other ranks; `where` is such as `over MPI`."""

    rank: int
    where: str
    seconds: float

    def __str__(self) -> str:
        return f"rank {self.rank}: not all ranks have joined {self.where} after {self.seconds:.0f} s (--join-timeout)"


class Watchdog:
    """Calls on_hang once with this rank's Hang, from a separate thread, after timeout_seconds without a heartbeat; 0: never.

    It counts ticks instead of reading a clock, so that time in which this process was stopped does not count. `on_hang` is called with
    Late instead where the rank has waited `join_seconds` for other ranks to join; 0: never.
    """

    def __init__(
        self, timeout_seconds: float, rank: int, on_hang: Callable[[Hang | Late], object] = print, join_seconds: float = JOIN_SECONDS
    ) -> None:
        self.rank, self._on_hang = rank, on_hang
        self.position = Position()
        self._idle_seconds, self._join_seconds = 0.0, join_seconds
        if timeout_seconds:
            threading.Thread(target=self._run, args=(timeout_seconds,), daemon=True).start()

    def begin(self, position: Position) -> None:
        """Notes that a step begins; also a heartbeat."""
        self.position = position
        self.heartbeat()

    def heartbeat(self) -> None:
        """Notes that the rank has made progress."""
        self._idle_seconds = 0.0

    @contextlib.contextmanager
    def joining(self, where: Callable[[], str], on_late: Callable[[Late], object] | None = None) -> Iterator[None]:
        """Within this context the rank waits for others to join it, up to the time limit. `where` is called when that has passed.

        `on_late` is called with Late instead of `on_hang`.
        """
        is_over = threading.Event()
        if self._join_seconds:
            threading.Thread(target=self._limit_joining, args=(where, on_late or self._on_hang, is_over), daemon=True).start()
        try:
            yield
        finally:
            is_over.set()
            self.heartbeat()

    def _limit_joining(self, where: Callable[[], str], on_late: Callable[[Late], object], is_over: threading.Event) -> None:
        seconds = 0.0
        while seconds < self._join_seconds:
            if is_over.wait(TICK_SECONDS):
                return
            seconds += TICK_SECONDS
            self.heartbeat()
        on_late(Late(self.rank, where(), seconds))

    def _run(self, timeout_seconds: float) -> None:
        while self._idle_seconds < timeout_seconds:
            time.sleep(TICK_SECONDS)
            self._idle_seconds += TICK_SECONDS
        self._on_hang(Hang(self.rank, self.position, self._idle_seconds))


# The watchdog of this process, once it has begun one.
_of_process: list[Watchdog] = []


def begin(timeout_seconds: float, rank: int, on_hang: Callable[[Hang | Late], object], join_seconds: float = JOIN_SECONDS) -> Watchdog:
    """Begins the Watchdog of this process."""
    _of_process[:] = [Watchdog(timeout_seconds, rank, on_hang, join_seconds)]
    return _of_process[0]


def joining(
    rank: int, where: Callable[[], str], on_late: Callable[[Late], object] | None = None
) -> contextlib.AbstractContextManager[None]:
    """Is Watchdog.joining of the Watchdog of this process, or of a new one where it has not begun any."""
    return (_of_process[0] if _of_process else Watchdog(0, rank)).joining(where, on_late)
