"""A run that stands still: every rank watches its own steps, tells where it stands, and ends itself."""

import os
import re
import sys
import threading
import time
import traceback
from typing import NamedTuple

TICK_SECONDS = 1.0
# A launcher ends all ranks when the first one leaves: the others get this long to tell where they stand.
SECONDS_FOR_OTHERS = 3.0
NUM_FRAMES = 20


class Place(NamedTuple):
    """Where a rank is: in which step of which epoch, both counted from 1. Epoch 0 is before training, a step too many after the last."""

    epoch: int = 0
    step: int = 0
    num_steps: int = 0

    def __str__(self):
        if not self.epoch:
            return "before the first epoch"
        if self.step > self.num_steps:
            return f"after the {self.num_steps} steps of epoch {self.epoch}"
        return f"in step {self.step}/{self.num_steps} of epoch {self.epoch}"


class Standstill(NamedTuple):
    """A rank that has stood still, where, and for how many seconds."""

    rank: int
    place: Place
    seconds: float

    def __str__(self):
        return f"rank {self.rank}: stood still for {self.seconds:.0f} s {self.place} (--stall-limit)"


class Watch:
    """Calls on_standstill(place, seconds) once, from a thread of its own, when nothing has gone on for limit_seconds; 0: never.

    Time in which this process was itself stopped does not count.
    """

    def __init__(self, limit_seconds, on_standstill):
        self.place = Place()
        self._idle_seconds = 0.0
        if limit_seconds:
            threading.Thread(target=self._run, args=(limit_seconds, on_standstill), daemon=True).start()

    def at(self, epoch, step, num_steps):
        """The rank begins a step."""
        self.place = Place(epoch, step, num_steps)
        self.goes_on()

    def goes_on(self):
        """Something was done."""
        self._idle_seconds = 0.0

    def _run(self, limit_seconds, on_standstill):
        while self._idle_seconds < limit_seconds:
            time.sleep(TICK_SECONDS)
            self._idle_seconds += TICK_SECONDS
        on_standstill(self.place, self._idle_seconds)


PLACE = r"after the (\d+) steps of epoch (\d+)|in step (\d+)/(\d+) of epoch (\d+)|before the first epoch"
LINE = re.compile(rf"error: rank (\d+): stood still for (\d+) s (?:{PLACE})")


def read_line(text):
    """The Standstill of which a rank told in this line, or None for any other line."""
    found = LINE.search(text)
    if not found:
        return None
    rank, seconds, num_steps, ended, step, of, epoch = (int(group or 0) for group in found.groups())
    place = Place(epoch, step, of) if epoch else Place(ended, num_steps + 1, num_steps) if ended else Place()
    return Standstill(rank, place, float(seconds))


def leave(standstill):
    """Tells that this rank stands still, and at what its main thread is; ends it with exit status 1."""
    frames = traceback.format_stack(sys._current_frames()[threading.main_thread().ident])[-NUM_FRAMES:]
    print(f"error: {standstill}\n{''.join(frames)}", end="", file=sys.stderr, flush=True)
    time.sleep(SECONDS_FOR_OTHERS)
    os._exit(1)
