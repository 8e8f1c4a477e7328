"""Signals with which a batch system or a terminal ends a process. A thread gets them, also while the main thread waits in a library."""

import os
import signal
import threading
from collections.abc import Callable

# Those that a batch system sends before and at the end of a job, those of a limit on processor time, and that of a closed terminal.
ENDING = (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)


def on_end(end: Callable[[signal.Signals], object]) -> None:
    """Calls `end`, in a separate thread, with the first of the ENDING signals that this process gets and does not ignore."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    threading.Thread(target=_wait, args=(read_end, end), daemon=True).start()


def _wait(read_end: int, end: Callable[[signal.Signals], object]) -> None:
    while (number := os.read(read_end, 1)[0]) not in ENDING:
        pass
    end(signal.Signals(number))
