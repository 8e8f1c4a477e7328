"""Turns of runs that share a node side by side in time: a run stops itself at the end of its turn, and the matrix continues it.

While it is stopped, it takes no time from the run whose turn it is: the threads of its libraries are stopped with it.
"""

import contextlib
import os
import re
import signal

import numpy as np

from common.process.ranks import node_name
from common.trainer import by_rank

# Set by the matrix to the `node` on which it can continue the processes of the run.
VARIABLE = "TANDEM_TURNS"
# A turn ends after so long, or with the epoch. Between every second pair of turns and the rest, ratios of two backends differed by 2 %
# with turns of 2 s, and by 1 % with these. The first step of a turn is some 7 % slower than the others.
TURN_SECONDS = 0.3
MARK = "turn ended:"
LINE = re.compile(MARK + r"((?: \d+)+)")


class Turns:
    """The turns of this rank's run. All ranks make the same calls.

    `num_steps`: the number of steps of a turn; 0 where the run takes no turns, because it was started without a matrix or because the
    matrix cannot continue all its processes. `num_ended`: the number of turns that have ended. `meters`: the Meters that leave out what
    happens between turns. `step_seconds`: how long a step took on this rank when the run was made ready.
    """

    def __init__(self, trainer, step_seconds, pids_by_rank):
        self._trainer, self._pids = trainer, pids_by_rank
        is_reachable = by_rank(trainer, VARIABLE in os.environ and os.environ[VARIABLE] == node()).all()
        self.num_ended, self.meters = 0, []
        self.num_steps = _num_steps(by_rank(trainer, step_seconds)) if is_reachable else 0

    def end(self, step_seconds=0.0):
        """Ends the turn, if the run takes turns, and returns on all ranks together when the next one begins.

        `step_seconds`: how long a step of this turn took on this rank, which sets the length of the next one; 0 where it is not known.
        """
        if not self.num_steps:
            return
        # Barrier: waiting for a slower rank belongs to the turn.
        seconds_by_rank = by_rank(self._trainer, step_seconds)
        if seconds_by_rank.all():
            self.num_steps = _num_steps(seconds_by_rank)
        self.num_ended += 1
        with contextlib.ExitStack() as paused:
            for meter in self.meters:
                paused.enter_context(meter.pause("turns"))
            if self._trainer.ranks.rank == 0:
                print(format_line(self._pids), flush=True)
            stop()
            self._trainer.sum(np.zeros(1))


def _num_steps(seconds_by_rank):
    return max(1, round(TURN_SECONDS / seconds_by_rank.max()))


def stop():
    """Stops all threads of this process, until another process continues it."""
    os.kill(os.getpid(), signal.SIGSTOP)


def node():
    """Names what processes that can see and continue each other share: the boot of their node and their namespace of processes."""
    return f"{node_name()} {os.readlink('/proc/self/ns/pid')}"


def format_line(pids):
    return " ".join([MARK, *map(str, pids)])


def read_line(line):
    """Returns the process IDs of a run whose turn has ended, from a line that `format_line` made; None for any other line."""
    match = LINE.search(line)
    return [int(pid) for pid in match[1].split()] if match else None
