"""The threads of this process: which of them a function starts, and how long each computes and waits for a core."""

import contextlib
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

TASKS = Path("/proc/self/task")


class Times(NamedTuple):
    """Seconds of a thread on a core, and seconds in which it could have been on one but another thread was."""

    computing_seconds: float
    waiting_seconds: float


def started_by(function: Callable[[], object]) -> set[int]:
    """Calls a function, and returns the ids of the threads that it starts and leaves."""
    before = set(os.listdir(TASKS))
    function()
    return {int(thread) for thread in set(os.listdir(TASKS)) - before}


def times() -> dict[int, Times]:
    """Returns the Times of each thread since its start, by id; empty where the kernel does not count them (CONFIG_SCHED_INFO)."""
    times_of = {}
    for thread in os.listdir(TASKS):
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            computing, waiting, _ = map(int, (TASKS / thread / "schedstat").read_text().split())
            times_of[int(thread)] = Times(computing / 1e9, waiting / 1e9)
    return times_of


def taken_seconds(before: Mapping[int, Times], after: Mapping[int, Times], takers: Collection[int]) -> float:
    """Returns the seconds between two calls of `times` in which some threads, the takers, kept the other threads from computing.

    They are the seconds in which the takers computed, but no more than the thread that waited longest for a core: where there is a core to
    spare, the takers keep nobody waiting.
    """
    spent = {
        thread: Times(*(end - begin for begin, end in zip(before[thread], after[thread], strict=True)))
        for thread in before.keys() & after.keys()
    }
    computing = sum(times.computing_seconds for thread, times in spent.items() if thread in takers)
    waiting = max((times.waiting_seconds for thread, times in spent.items() if thread not in takers), default=0.0)
    return min(computing, waiting)
