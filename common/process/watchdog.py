"""Watchdog: a thread that reports a hang of its rank, with the step and the stack of the main thread, and ends the process."""

import os
import re
import sys
import threading
import time
import traceback
from typing import NamedTuple

TICK_SECONDS = 1.0
# Before exiting, because the launcher ends all ranks when the first one exits.
SECONDS_FOR_OTHERS = 3.0
NUM_FRAMES = 20


class Place(NamedTuple):
    """The step and epoch of a rank, both counted from 1. Epoch 0 is before training; step num_steps + 1 is after the last step."""

    epoch: int = 0
    step: int = 0
    num_steps: int = 0

    def __str__(self):
        if not self.epoch:
            return "before the first epoch"
        if self.step > self.num_steps:
            return f"after the {self.num_steps} steps of epoch {self.epoch}"
        return f"in step {self.step}/{self.num_steps} of epoch {self.epoch}"


class Hang(NamedTuple):
    """A rank without a heartbeat: its rank, where it is (in a training its Place, elsewhere words), and for how many seconds."""

    rank: int
    place: Place | str
    seconds: float

    def __str__(self):
        return f"rank {self.rank}: hung for {self.seconds:.0f} s {self.place} (--watchdog-timeout)"


def leave(hang):
    """Reports this rank's hang with the stack of its main thread; ends the process with exit status 1."""
    frames = traceback.format_stack(sys._current_frames()[threading.main_thread().ident])[-NUM_FRAMES:]
    print(f"error: {hang}\n{''.join(frames)}", end="", file=sys.stderr, flush=True)
    time.sleep(SECONDS_FOR_OTHERS)
    os._exit(1)


class Watchdog:
    """Calls on_hang once with this rank's Hang, from its own thread, after timeout_seconds without a heartbeat; 0: never.

    It counts ticks instead of reading a clock, so that time in which this process was stopped does not count.
    """

    def __init__(self, timeout_seconds, rank, on_hang=leave):
        self.rank, self.place = rank, Place()
        self._idle_seconds = 0.0
        if timeout_seconds:
            threading.Thread(target=self._run, args=(timeout_seconds, on_hang), daemon=True).start()

    def begin(self, place):
        """The rank begins a step, the Place, or something else, in words such as `in all_reduce of 8 bytes over mpi`; also a heartbeat."""
        self.place = place
        self.heartbeat()

    def heartbeat(self):
        """The rank has made progress."""
        self._idle_seconds = 0.0

    def _run(self, timeout_seconds, on_hang):
        while self._idle_seconds < timeout_seconds:
            time.sleep(TICK_SECONDS)
            self._idle_seconds += TICK_SECONDS
        on_hang(Hang(self.rank, self.place, self._idle_seconds))


PLACE = r"(?:after the (?P<ended>\d+) steps|in step (?P<step>\d+)/(?P<of>\d+)) of epoch (?P<epoch>\d+)|before the first epoch"
LINE = re.compile(rf"error: rank (?P<rank>\d+): hung for (?P<seconds>\d+) s (?:{PLACE}|(?P<words>in [\w ]+))")


def read_line(text):
    """The Hang that a rank reported in this line, or None for any other line."""
    match = LINE.search(text)
    if not match:
        return None
    place = match["words"].rstrip() if match["words"] else Place()
    if match["epoch"]:
        num_steps = int(match["ended"] or match["of"])
        place = Place(int(match["epoch"]), int(match["step"] or num_steps + 1), num_steps)
    return Hang(int(match["rank"]), place, float(match["seconds"]))
